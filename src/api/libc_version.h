// Which C library the process runs with: it may be newer than the one that this library was built with.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#if defined(__GLIBC__)
// Whether it is glibc 2.`minor` or later. The loader is not asked: its lock may be a thread's that waits for this one.
bool glibc_is_at_least(uint64_t minor);
#endif
