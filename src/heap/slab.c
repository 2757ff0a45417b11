#include "heap/slab.h"

#include "base/bits.h"
#include "base/check.h"
#include "config/options.h"
#include "os/events.h"
#include "os/os.h"
#include "space/metadata.h"
#include "space/page_map.h"
#include "space/purge_pages.h"

// Both bitmaps of a slab, and what options ask for besides, in one piece; 0: in the descriptor.
static size_t bitmap_piece_bytes(const struct run *slab) {
    const unsigned words = slab_words(slab);
    if (likely((slab_keeps_requests() | (options.quarantine_blocks != 0)) == 0)) {
        return words == 1 ? 0 : 2 * slab_bitmap_bytes(words);
    }
    return 2 * slab_bitmap_bytes(words) + slab_requests_bytes(slab) +
           (options.quarantine_blocks != 0 ? words * sizeof(uint64_t) : 0);
}

static bool make_bitmaps(struct run *slab) {
    const size_t bytes = bitmap_piece_bytes(slab);
    if (bytes == 0) {
        slab->free_bits = &slab->one_word_free;
        slab->remote_bits = &slab->one_word_remote;
        return true;
    }
    char *piece = metadata_alloc_bitmaps(bytes);
    if (piece == NULL) {
        return false;
    }
    slab->free_bits = (void *)piece;
    slab->remote_bits = (void *)(piece + slab_bitmap_bytes(slab_words(slab)));
    return true;
}

// Makes a slab of a run that is nothing else. False, and then it still is nothing, when there is no memory for its bitmaps.
static bool set_up(struct run *slab, struct heap *heap, uint32_t heap_id, uint64_t class_index,
                   bool zeroed) {
    slab->class_index = (uint8_t)class_index;
    slab->block_count = size_classes[class_index].block_count;
    if (!make_bitmaps(slab)) {
        return false;
    }
    atomic_store_relaxed(&slab->large_bytes, 0);
    slab->free_count = slab->block_count;
    slab->fresh_index = 0;
    slab->tail_dirty = !zeroed;
    slab->clean_count = zeroed ? slab->block_count : 0;
    slab->purged = 0;
    slab->purge_age = zeroed ? SLAB_PURGE_NONE : SLAB_PURGE_USED;
    const unsigned words = slab_words(slab);
    for (unsigned w = 0; w < words; w++) {
        atomic_store_relaxed(&slab->free_bits[w], slab_word_blocks(slab, w));
        if (unlikely(options.quarantine_blocks != 0)) {
            atomic_store_relaxed(&slab_quarantined(slab)[w], 0);
        }
    }
    slab->summary = bit_range(0, words);
    list_init(&slab->bin_link);
    atomic_store_relaxed(&slab->heap, heap);
    // After the heap, before a block is out: a bit of a block that was freed twice, in the slab that was
    // here before, is gone; one that comes later is announced by a thread that has seen the heap.
    for (unsigned w = 0; w < words; w++) {
        atomic_store_release(&slab->remote_bits[w], 0);
    }
    atomic_store_relaxed(&slab->kind, RUN_SLAB);
    page_map_set(slab->start, slab->page_count, page_entry_slab(slab, class_index));
    event_record(EVENT_slab_created, slab->start, page_owner(heap_id, class_index));
    return true;
}

static void take_down(struct run *slab) {
    event_record(EVENT_slab_released, slab->start, slab->class_index);
    page_map_set(slab->start, slab->page_count, PAGE_ENTRY_NONE);
    // Before its class and its bitmaps change: who doubts a pointer looks at both.
    atomic_store_relaxed(&slab->kind, RUN_FREE);
    atomic_store_relaxed(&slab->heap, NULL);
    const size_t bytes = bitmap_piece_bytes(slab);
    if (bytes != 0) {
        metadata_free_bitmaps((void *)slab->free_bits, bytes);
    }
}

// Gives the run of what is no slab back, unless it has become one.
static struct run *or_give(struct run *slab, bool is_set_up) {
    if (likely(is_set_up)) {
        return slab;
    }
    arena_give(slab);
    return NULL;
}

struct run *slab_create(struct heap *heap, uint32_t heap_id, uint64_t class_index) {
    uint64_t used;
    struct run *slab = arena_take(size_classes[class_index].slab_pages, PAGE_BYTES,
                                  options.guard_gaps != 0, &used);
    return slab == NULL ? NULL : or_give(slab, set_up(slab, heap, heap_id, class_index, used == 0));
}

struct run *slab_remake(struct run *slab, struct heap *heap, uint32_t heap_id,
                        uint64_t class_index) {
    // What was purged is without memory still, and tells so when it is handed out.
    const bool is_clean = slab->clean_count == slab->free_count && !slab->tail_dirty;
    const uint8_t purged = is_clean ? slab->purged : 0;
    take_down(slab);
    slab = or_give(slab, set_up(slab, heap, heap_id, class_index, is_clean));
    if (likely(slab != NULL)) {
        slab->purged = purged;
    }
    return slab;
}

void slab_destroy(struct run *slab) {
    take_down(slab);
    arena_give(slab);
}

SLOW_PATH bool slab_quarantine_has(const struct run *slab, unsigned index) {
    return (atomic_load_relaxed(&slab_quarantined(slab)[index / 64]) & bit(index % 64)) != 0;
}

// Returns how many.
static unsigned remove_bits(struct run *slab, unsigned word, uint64_t before, uint64_t taken) {
    atomic_store_relaxed(&slab->free_bits[word], before & ~taken);
    if (before == taken) {
        slab->summary &= ~bit(word);
    }
    const unsigned count = bit_count(taken);
    slab->free_count = (uint16_t)(slab->free_count - count);
    slab->clean_count = slab->clean_count < count ? 0 : (uint16_t)(slab->clean_count - count);
    const unsigned end = word * 64 + bit_highest(taken) + 1;
    if (end > slab->fresh_index) {
        slab->fresh_index = (uint16_t)end;
    }
    return count;
}

// Writes the blocks of some bits of a word below `end`, the highest address first. Returns where they begin.
static void **list_blocks(const struct run *slab, unsigned word, uint64_t bits, void **end) {
    const size_t block_bytes = size_classes[slab->class_index].block_bytes;
    const uintptr_t start = slab_block(slab, word * 64);
    if (!bit_is_stretch(bits)) {
        for (; bits != 0; bits &= bits - 1) {
            *--end = (void *)(start + bit_lowest(bits) * block_bytes);
        }
        return end;
    }
    const unsigned first = bit_lowest(bits);
    void **begin = end - bit_stretch_length(bits, first);
    uintptr_t block = start + first * block_bytes;
    for (; end - begin >= 4; block += 4 * block_bytes) {
        *--end = (void *)block;
        *--end = (void *)(block + block_bytes);
        *--end = (void *)(block + 2 * block_bytes);
        *--end = (void *)(block + 3 * block_bytes);
    }
    for (; end != begin; block += block_bytes) {
        *--end = (void *)block;
    }
    return end;
}

unsigned slab_take(struct run *slab, unsigned want, void **blocks) {
    struct {
        unsigned word;
        uint64_t bits;
    } taken[WORDS_FEW];
    unsigned got = 0;
    unsigned words = 0;
    for (; words < WORDS_FEW && got < want && slab->summary != 0; words++) {
        const unsigned word = bit_lowest(slab->summary);
        const uint64_t before = atomic_load_relaxed(&slab->free_bits[word]);
        taken[words].word = word;
        taken[words].bits = bits_lowest(before, want - got);
        got += remove_bits(slab, word, before, taken[words].bits);
    }
    void **end = blocks + got;
    for (unsigned i = 0; i < words; i++) {
        end = list_blocks(slab, taken[i].word, taken[i].bits, end);
    }
    return got;
}

// A set bit of a word that is not zero: the first one from a random place on.
static unsigned random_bit(uint64_t word, uint64_t *random_state) {
    const unsigned turn = (unsigned)(random_next(random_state) >> 58);
    const uint64_t turned = turn == 0 ? word : (word >> turn | word << (64 - turn));
    return (bit_lowest(turned) + turn) % 64;
}

void *slab_take_random(struct run *slab, uint64_t *random_state) {
    const unsigned word = random_bit(slab->summary, random_state);
    const uint64_t before = atomic_load_relaxed(&slab->free_bits[word]);
    const unsigned place = random_bit(before, random_state);
    remove_bits(slab, word, before, bit(place));
    return (void *)slab_block(slab, word * 64 + place);
}

// First index from `index` on, below `end`, whose block the slab holds (or does not, with
// `held` false); `end` when there is none.
static unsigned next_index(const struct run *slab, unsigned index, unsigned end, bool held) {
    while (index < end) {
        uint64_t word = atomic_load_relaxed(&slab->free_bits[index / 64]);
        word = (held ? word : ~word) & bit_range(index % 64, 64 - index % 64);
        if (word != 0) {
            const unsigned found = index / 64 * 64 + bit_lowest(word);
            return found < end ? found : end;
        }
        index = (index / 64 + 1) * 64;
    }
    return end;
}

bool slab_is_sparse(const struct run *slab) {
    const size_t used_count = slab->block_count - slab->free_count;
    return used_count * (size_classes[slab->class_index].block_bytes + os_page_bytes()) <=
           slab->page_count * PAGE_BYTES;
}

// Returns the bytes that were asked for: none where they are too few for a call.
static size_t give_back(uintptr_t start, uintptr_t stop, size_t bytes_min,
                        struct slab_given_back *purged) {
    if (start >= stop || stop - start < bytes_min) {
        return 0;
    }
    purged->bytes += purge_part((void *)start, stop - start, &purged->calls);
    return stop - start;
}

struct slab_given_back slab_purge(struct run *slab, size_t bytes_min) {
    const size_t block_bytes = size_classes[slab->class_index].block_bytes;
    const size_t page_bytes = os_page_bytes();
    struct slab_given_back purged = {0, 0};
    const unsigned limit = slab->tail_dirty ? slab->block_count : slab->fresh_index;
    // What is behind is no block's, or has never been: the page that the last one ends in goes as a whole.
    const uintptr_t limit_end = slab->tail_dirty
                                    ? slab->start + slab->page_count * PAGE_BYTES
                                    : align_up(slab->start + limit * block_bytes, page_bytes);
    size_t asked_bytes = 0;
    // What the system does not take counts as gone all the same: it is not tried again for being too much.
    slab->clean_count = slab->free_count;
    unsigned index = next_index(slab, 0, limit, true);
    while (index < limit) {
        const unsigned end = next_index(slab, index, limit, false);
        const uintptr_t start = align_up(slab->start + index * block_bytes, page_bytes);
        const uintptr_t stop =
            end == limit ? limit_end : align_down(slab->start + end * block_bytes, page_bytes);
        asked_bytes += give_back(start, stop, bytes_min, &purged);
        index = next_index(slab, end, limit, true);
    }
    if (unlikely(slab->tail_dirty) && bytes_min == 0 &&
        next_index(slab, limit - 1, limit, true) == limit) {
        // The last block is in use, so no stretch went to the end.
        const uintptr_t tail = align_up(slab->start + limit * block_bytes, page_bytes);
        asked_bytes += give_back(tail, limit_end, 0, &purged);
    }
    if (unlikely(purged.bytes != asked_bytes)) {
        slab->purge_age = SLAB_PURGE_REFUSED;
    } else if (bytes_min == 0) {
        slab->purge_age = SLAB_PURGE_NONE;
        slab->tail_dirty = 0;
    }
    return purged;
}

size_t slab_check(const struct run *slab) {
    struct check check = {"slab", slab->start, 0};
    unsigned held = 0;
    const unsigned words = slab_words(slab);
    for (unsigned w = 0; w < words; w++) {
        const uint64_t word = atomic_load_relaxed(&slab->free_bits[w]);
        const uint64_t remote = atomic_load_relaxed(&slab->remote_bits[w]);
        const uint64_t blocks = slab_word_blocks(slab, w);
        check_that(&check, ((slab->summary & bit(w)) != 0) == (word != 0),
                   "summary tells the words of free_bits that are not 0", slab->summary, w);
        check_equal(&check, "free_bits has no bit behind the last block", word & ~blocks, 0);
        check_equal(&check, "remote_bits has no bit behind the last block", remote & ~blocks, 0);
        check_equal(&check, "no block is both held and on its way back", word & remote, 0);
        held += bit_count(word);
    }
    check_equal(&check, "free_count == blocks in free_bits", slab->free_count, held);
    check_that(&check, slab->clean_count <= slab->free_count, "clean_count <= free_count",
               slab->clean_count, slab->free_count);
    check_equal(&check, "summary has no bit behind the last word",
                words < 64 ? slab->summary >> words : 0, 0);
    check_that(&check, slab->fresh_index <= slab->block_count, "fresh_index <= block_count",
               slab->fresh_index, slab->block_count);
    check_equal(&check, "block_count is the size class's", slab->block_count,
                size_classes[slab->class_index].block_count);
    return check.violations;
}
