// What readers outside of the process find: include/hakmem_inspect.h.
#pragma once

// Tells them of a profile's size classes. Once, when options are loaded and there is a profile.
void inspect_start(void);
