#include "heap/block_pages.h"

#include "base/bits.h"
#include "config/options.h"
#include "os/os.h"
#include "space/huge_pages.h"
#include "space/space_hooks.h"

#define table huge_table_state

// What is looked at of a block.
#define LOOKED_BYTES (2 * MIB)

// Whether it is long enough to ask.
static bool may_ask(size_t usable_bytes) {
    return usable_bytes >= BLOCK_PAGES_BYTES_MIN &&
           usable_bytes >= BLOCK_PAGES_MIN * os_huge_page_bytes();
}

static bool learns(void) {
    return options.huge_pages == huge_pages_adaptive && option_live(learn) != 0;
}

static void tell(struct huge *huge, enum os_huge_pages wish) {
    os_advise_huge_pages((void *)huge->start, huge->usable_bytes, wish);
    if (wish == OS_HUGE_PAGES_ALWAYS) {
        huge->asked = HUGE_ASKED_WHOLE;
        huge->may_have_huge_pages = 1;
    } else {
        huge->asked = HUGE_ASKED_NOT;
    }
}

void block_pages_look(struct huge *huge) {
    const uintptr_t first = align_up(huge->start + huge->fresh_offset, LOOKED_BYTES);
    const uintptr_t end = align_down(huge->start + huge->usable_bytes, LOOKED_BYTES);
    if (!learns() || first >= end) {
        return;
    }
    // Not where the program might expect it.
    struct huge_looks *looks = &table.looks;
    const uint64_t random = (uint64_t)(looks->count + 1u) * UINT64_C(0x9e3779b97f4a7c15) >> 32;
    const uintptr_t part = first + random % ((end - first) / LOOKED_BYTES) * LOOKED_BYTES;
    const unsigned place = looks->count++ % HUGE_LOOKS;
    looks->resident_bytes[place] = os_resident_bytes((void *)part, LOOKED_BYTES);
    looks->block_bytes[place] = huge->usable_bytes;
    huge->fresh_offset = huge->usable_bytes;
}

static void look_at_newest(void) {
    unsigned left = HUGE_LOOKS;
    for (struct list *link = table.live.next; link != &table.live && left != 0; link = link->next) {
        block_pages_look(CONTAINER_OF(link, struct huge, link));
        left--;
    }
}

static bool ask_learner(void) {
    growth_hook *hook = atomic_load_relaxed(&space_hooks.block_growth);
    struct huge_looks *looks = &table.looks;
    if (hook == NULL) {
        return false;
    }
    look_at_newest();
    struct growth_signals signals = {.touch_ns = looks->touch_ns};
    looks->touch_ns = 0;
    for (unsigned i = 0; i < HUGE_LOOKS; i++) {
        signals.used_bytes += looks->block_bytes[i] != 0 ? LOOKED_BYTES : 0;
        signals.resident_bytes += looks->resident_bytes[i];
    }
    table.asks = signals.used_bytes != 0 && hook(&signals);
    return table.asks;
}

static bool is_like_those_seen(size_t usable_bytes) {
    uint64_t longest_bytes = 0;
    for (unsigned i = 0; i < HUGE_LOOKS; i++) {
        longest_bytes = greatest_u64(longest_bytes, table.looks.block_bytes[i]);
    }
    return usable_bytes / BLOCK_PAGES_LONGER <= longest_bytes;
}

bool block_pages_ask(size_t usable_bytes, bool is_bare) {
    if (options.huge_pages == huge_pages_always) {
        return true;
    }
    return may_ask(usable_bytes) && learns() && !is_bare && ask_learner() &&
           ++table.asked_count % BLOCK_PAGES_PROBE != 0 && is_like_those_seen(usable_bytes);
}

bool block_pages_ask_grown(const struct huge *huge, size_t usable_bytes) {
    if (options.huge_pages == huge_pages_always) {
        return true;
    }
    return may_ask(usable_bytes) && learns() &&
           (huge->asked == HUGE_ASKED_WHOLE ? table.asks : ask_learner()) &&
           is_like_those_seen(usable_bytes);
}

size_t block_pages_alignment(size_t usable_bytes, bool asks) {
    return asks && may_ask(usable_bytes) ? os_huge_page_bytes() : PAGE_BYTES;
}

void block_pages_map(struct huge *huge, bool asks) {
    huge->fresh_offset = asks ? huge->usable_bytes : 0;
    tell(huge, asks ? OS_HUGE_PAGES_ALWAYS : huge_pages_wish_of_block());
}

void block_pages_grow(struct huge *huge, bool asks) {
    if (asks) {
        huge->fresh_offset = huge->usable_bytes;
        if (huge->asked != HUGE_ASKED_WHOLE) {
            tell(huge, OS_HUGE_PAGES_ALWAYS);
        }
    } else if (huge->asked != HUGE_ASKED_NOT) {
        tell(huge, OS_HUGE_PAGES_NEVER);
    }
}

void *block_pages_first(const struct huge *huge, size_t from_bytes) {
    const uintptr_t part = align_up(huge->start + from_bytes, os_huge_page_bytes());
    return huge->asked == HUGE_ASKED_WHOLE && options.huge_pages == huge_pages_adaptive &&
                   part + os_huge_page_bytes() <= huge->start + huge->usable_bytes
               ? (void *)part
               : NULL;
}

void block_pages_touch(struct huge *huge, void *first) {
    const uint64_t touch_ns = first == NULL ? 0 : os_touch_ns(first);
    if (touch_ns >= HUGE_PAGE_SLOW_NS) {
        lock_acquire(&table.lock);
        table.looks.touch_ns = touch_ns;
        tell(huge, OS_HUGE_PAGES_NEVER);
        lock_release(&table.lock);
    }
}

void block_pages_fill(struct huge *huge, const struct huge *source, size_t filled_bytes) {
    huge->fresh_offset = greatest_u64(huge->fresh_offset, filled_bytes);
    if (source->asked != huge->asked) {
        huge->asked = HUGE_ASKED_IN_PART;
    }
    huge->may_have_huge_pages |= source->may_have_huge_pages;
}

void block_pages_reuse(struct huge *huge, bool is_bare) {
    huge->fresh_offset = huge->usable_bytes;
    if (huge->asked != HUGE_ASKED_NOT && options.huge_pages == huge_pages_adaptive &&
        (is_bare || !table.asks || !learns())) {
        tell(huge, OS_HUGE_PAGES_NEVER);
    }
}

void block_pages_split(const struct huge *huge, uintptr_t address) {
    if (huge->may_have_huge_pages) {
        os_split_huge_pages((void *)address, os_page_bytes());
    }
}
