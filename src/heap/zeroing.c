#include "heap/zeroing.h"

#include "base/bits.h"
#include "config/options.h"
#include "heap/block_pages.h"
#include "heap/leaving.h"
#include "os/os.h"
#include "space/page_map.h"

// One zeroed block in so many is looked at while blocks are cleared; while they are not, each one is.
#define PROBE_EVERY 8
// The part of a block that is looked at.
#define PROBE_PART 64

static size_t probe_offset(const struct huge *huge) {
    return align_down(huge->usable_bytes / 2, PAGE_BYTES);
}

static size_t probe_bytes(const struct huge *huge) {
    return least_u64(align_up(huge->usable_bytes / PROBE_PART, PAGE_BYTES),
                     huge->usable_bytes - probe_offset(huge));
}

struct zeroing zeroing_next(void) {
    // Kept mappings of the hardened mode are clean already.
    const bool clears = huge_table_state.clears && !options.zero_on_free;
    return (struct zeroing){clears, !clears || huge_table_state.zeroed_count++ % PROBE_EVERY == 0};
}

static void make_clean(char *start, size_t bytes) {
    if (bytes != 0 && !leaving_purge((uintptr_t)start, bytes)) {
        __builtin_memset(start, 0, bytes);
    }
}

// A part amid others.
static void make_part_clean(const struct huge *huge, size_t offset, size_t bytes) {
    block_pages_split(huge, huge->start + offset);
    block_pages_split(huge, huge->start + offset + bytes - os_page_bytes());
    make_clean((char *)huge->start + offset, bytes);
}

void zeroing_do(struct huge *huge, size_t dirty_bytes, struct zeroing zeroing) {
    char *start = (char *)huge->start;
    if (!zeroing.clears) {
        make_clean(start, dirty_bytes);
    } else if (!zeroing.probes) {
        __builtin_memset(start, 0, dirty_bytes);
    } else {
        const size_t offset = probe_offset(huge);
        const size_t end = offset + probe_bytes(huge);
        __builtin_memset(start, 0, least_u64(dirty_bytes, offset));
        if (dirty_bytes > offset) {
            make_part_clean(huge, offset, end - offset);
        }
        if (dirty_bytes > end) {
            __builtin_memset(start + end, 0, dirty_bytes - end);
        }
    }
    huge->probed_bytes = zeroing.probes ? huge->usable_bytes : 0;
}

enum zeroing_use zeroing_use_of(const struct huge *huge) {
    // A block that was resized meanwhile has its middle elsewhere.
    if (huge->probed_bytes == 0 || huge->probed_bytes != huge->usable_bytes) {
        return ZEROING_UNKNOWN;
    }
    const size_t bytes = probe_bytes(huge);
    return os_resident_bytes((char *)huge->start + probe_offset(huge), bytes) >= bytes / 2
               ? ZEROING_TOUCHED
               : ZEROING_UNTOUCHED;
}

void zeroing_learn(enum zeroing_use use) {
    if (use != ZEROING_UNKNOWN) {
        huge_table_state.clears = use == ZEROING_TOUCHED;
    }
}
