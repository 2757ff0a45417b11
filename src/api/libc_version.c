#include "api/libc_version.h"

#if defined(__GLIBC__)
#include <gnu/libc-version.h>

#include "config/slice.h"

bool glibc_is_at_least(uint64_t minor) {
    struct slice rest = slice_of(gnu_get_libc_version());
    uint64_t found_major = 0;
    uint64_t found_minor = 0;
    return slice_decimal(slice_next(&rest, '.'), &found_major) &&
           slice_decimal(slice_next(&rest, '.'), &found_minor) &&
           (found_major > 2 || (found_major == 2 && found_minor >= minor));
}
#endif
