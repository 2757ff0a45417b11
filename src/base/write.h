// What the library has to say, or to save, written whole.
#pragma once

#include <stddef.h>

// Writes all of it, whatever interrupts. Returns 0 or an error number (EFAULT where memory is not readable); errno stays.
// Neither a reader that has gone (SIGPIPE) nor a limit of the size of files (SIGXFSZ) ends the process: these signals are taken
// back, but for one that was pending already. Takes no lock, and may be called in a handler of a signal.
int write_quietly(int descriptor, const void *start, size_t bytes);
