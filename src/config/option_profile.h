// The options that a profile sets (profile.def): staged while it is read, in force once all of it is
// known to be right. What is wrong costs one line on standard error, and the profile counts for nothing.
#pragma once

// Reads the profile that HAKMEM_PROFILE names.
void option_profile_stage(const char *name);

// Over the presets of the mode, before the environment's own settings.
void option_profile_apply(void);

// Without a profile.
void option_profile_forget(void);

// The line about the profile in force, among those of the options: what it sets there has its origin, but
// that its size classes are in use nothing else says. Nothing without a profile.
void option_profile_print(int fd);
