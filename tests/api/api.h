// What the files of the conformance suite share. Each is one cmocka program on one theme.
#pragma once

#include "behaviour.h"

#include <setjmp.h>

#ifdef __cplusplus
extern "C" {
#endif
#include <cmocka.h>
#ifdef __cplusplus
}
#endif

// C23 names that glibc 2.36 does not have; hakmem must.
#ifdef __cplusplus
extern "C" {
#endif
extern void free_sized(void *block, size_t bytes) __attribute__((weak));
extern void free_aligned_sized(void *block, size_t alignment, size_t bytes) __attribute__((weak));
#ifdef __cplusplus
}
#endif

#if defined(__GLIBC__)
// Bytes of blocks that are out, which hakmem counts exactly; 0 on glibc, which counts what waits in its caches too. What a name
// for freeing does not take stays among them.
BEHAVIOUR_UNUSED static size_t live_bytes(void) {
    const struct mallinfo2 info = mallinfo2();
    return behaviour_on_hakmem() ? info.uordblks + info.hblkhd : 0;
}
#endif

// Requests that no allocator can serve: PTRDIFF_MAX and above.
static const size_t impossible_sizes[] = {
    PTRDIFF_MAX,
    (size_t)PTRDIFF_MAX + 1,
    (size_t)PTRDIFF_MAX + 4096,
    SIZE_MAX - (4 << 20),
    SIZE_MAX - 65536,
    SIZE_MAX - 65535,
    SIZE_MAX - 8192,
    SIZE_MAX - 4096,
    SIZE_MAX - 4095,
    SIZE_MAX - 64,
    SIZE_MAX - 16,
    SIZE_MAX - 15,
    SIZE_MAX - 8,
    SIZE_MAX - 1,
    SIZE_MAX,
};
#define IMPOSSIBLE_COUNT (sizeof impossible_sizes / sizeof impossible_sizes[0])

// Sizes around every border that an allocator with classes of 16 bytes, of eight and of four steps
// per doubling, with pages of 4 and 64 KiB, with large blocks to 2 MiB and own mappings above, may
// have: each border, one less and one more.
typedef void (*size_visitor)(size_t bytes, void *context);

static inline void visit_around(size_t border, size_visitor visit, void *context) {
    visit(border - 1, context);
    visit(border, context);
    visit(border + 1, context);
}

static inline void for_border_sizes(size_t max, size_visitor visit, void *context) {
    for (size_t bytes = 16; bytes <= 1024 && bytes < max; bytes += 16) {
        visit_around(bytes, visit, context);
    }
    for (size_t doubling = 1024; doubling < max; doubling *= 2) {
        for (size_t step = 1; step <= 8; step++) {
            size_t bytes = doubling + doubling / 8 * step;
            if (bytes < max) {
                visit_around(bytes, visit, context);
            }
        }
    }
}
