#include "api/place.h"

#include "api/request.h"
#include "base/bits.h"
#include "heap/guarded.h"
#include "heap/huge.h"
#include "heap/large.h"
#include "heap/slab.h"
#include "heap/slack.h"
#include "os/os.h"
#include "thread/cache.h"

struct place place_find(uintptr_t address) {
    struct place place = {PLACE_NONE, NULL, NULL, 0};
    if (address >> ADDRESS_BITS != 0) {
        return place;
    }
    const uint64_t entry = page_map_get(address);
    switch (page_entry_kind(entry)) {
    case PAGE_KIND_LARGE:
        place.run = large_find(address);
        if (place.run != NULL) {
            place.kind = PLACE_LARGE;
            place.usable_bytes = atomic_load_relaxed(&place.run->large_bytes);
        }
        break;
    case PAGE_KIND_HUGE:
        place.huge = huge_find(address);
        if (place.huge != NULL && whole_load(&place.huge->start) == address) {
            place.kind = PLACE_HUGE;
            place.usable_bytes = whole_load(&place.huge->usable_bytes);
        }
        break;
    case PAGE_KIND_GUARDED:
        place.usable_bytes = guarded_block_bytes(address);
        if (place.usable_bytes != 0) {
            place.kind = PLACE_GUARDED;
        }
        break;
    default:
        if (page_entry_class(entry) < SIZE_CLASS_COUNT) {
            place.kind = PLACE_SMALL;
            place.run = page_entry_run(entry);
            place.usable_bytes = size_classes[place.run->class_index].block_bytes;
        }
        break;
    }
    return place;
}

struct place place_find_live(uintptr_t address, enum misuse otherwise) {
    struct place place = place_find(address);
    if (place.kind == PLACE_SMALL) {
        const int index = slab_index(place.run, address);
        if (index < 0) {
            place.kind = PLACE_NONE;
        } else if (slab_is_free(place.run, (unsigned)index) ||
                   cache_freed_lately(top_of(thread_cache, place.run->class_index), address) ||
                   slab_is_quarantined(place.run, (unsigned)index)) {
            misuse_report_freed(otherwise, place.run, (unsigned)index);
            place.kind = PLACE_NONE;
            return place;
        } else if (unlikely(options.slack_check)) {
            slack_require(place.run, (unsigned)index);
            place.usable_bytes = slab_usable_bytes(place.run, (unsigned)index);
        }
    }
    if (unlikely(place.kind == PLACE_NONE)) {
        misuse_report(otherwise, address);
    }
    return place;
}

bool place_fits(const struct place *place, size_t alignment, size_t bytes) {
    if (alignment > ALIGNMENT_MAX) {
        return false;
    }
    alignment = raised_alignment(alignment);
    if (place->kind == PLACE_GUARDED && alignment <= BLOCK_ALIGN) {
        return place->usable_bytes == (bytes == 0 ? 1 : bytes);
    }
    if (place->kind == PLACE_GUARDED) {
        return alignment <= SMALL_BYTES_MAX && bytes <= SMALL_BYTES_MAX &&
               place->usable_bytes == aligned_block_bytes(bytes, alignment);
    }
    if (is_small(bytes, alignment)) {
        return place->kind == PLACE_SMALL &&
               place->run->class_index == class_for(bytes, alignment) &&
               (!options.slack_check || place->usable_bytes == greatest_u64(bytes, 1));
    }
    // A huge block may have come from a kept mapping that was a little larger.
    const size_t rounded = align_up(bytes == 0 ? 1 : bytes, os_page_bytes());
    return place->kind == PLACE_HUGE ? rounded <= place->usable_bytes
                                     : rounded == place->usable_bytes;
}
