// What bins.c, heap.c and slab.c call that has nothing to do with the order of steps.
#include "base/bits.h"
#include "heap/misuse.h"
#include "heap/slack.h"
#include "main.h"
#include "os/os.h"
#include "space/page_map.h"
#include "space/purge_pages.h"

void page_map_set(uintptr_t start, size_t page_count, uint64_t entry) {
    (void)start;
    (void)page_count;
    (void)entry;
}

// Without it every look-up is page_map_get_unflat()'s, which each program has for itself.
page_entry_atomic *page_map_flat;

void misuse_report_freed_twice(const struct run *slab, unsigned word, uint64_t bits) {
    for (; bits != 0; bits &= bits - 1) {
        misuse_report_freed(MISUSE_INVALID_FREE, slab, word * 64 + bit_lowest(bits));
    }
}

void slack_require(struct run *slab, unsigned index) {
    (void)slab;
    (void)index;
    explorer_fail("slack is not checked here");
}

uint64_t os_random(void) {
    return 1;
}

uint64_t os_clock_ms_locked(void) {
    return 0;
}

bool purge_is_refused(void) {
    return false;
}

size_t purge_part(void *start, size_t bytes, unsigned *calls) {
    (void)start;
    ++*calls;
    return bytes;
}

bool huge_pages_may_back(const void *start) {
    (void)start;
    return false;
}
