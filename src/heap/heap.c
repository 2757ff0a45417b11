#include "heap/heap.h"

#include "base/bits.h"
#include "config/options.h"
#include "heap/bins.h"
#include "heap/heap_purge.h"
#include "heap/misuse.h"
#include "heap/slab.h"
#include "os/events.h"
#include "os/os.h"
#include "space/metadata.h"
#include "space/page_map.h"

void heap_init(struct heap *heap, uint32_t id) {
    lock_init(&heap->lock, LOCK_RANK_HEAP);
    heap->id = id;
    heap->budget_bytes = HEAP_BUDGET_ALL;
    heap->random_state = options.random_refill ? (os_random() | 1) : 1;
    for (size_t i = 0; i < RETAINED_CLASSES; i++) {
        heap->retained[i] = SIZE_CLASS_COUNT;
    }
    for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        list_init(&heap->bins[i].partial);
    }
    list_init(&heap->full);
    if (options.quarantine_blocks != 0) {
        // Without the memory for it the heap works, only with immediate reuse.
        heap->quarantine = metadata_alloc(options.quarantine_blocks * sizeof(void *));
    }
}

static inline void report_double_frees(const struct run *slab, unsigned word, uint64_t bits) {
    if (unlikely(bits != 0)) {
        misuse_report_freed_twice(slab, word, bits);
    }
}

static unsigned take_from(struct heap *heap, struct run *slab, unsigned want, void **blocks) {
    if (slab_is_empty(slab)) {
        bin_remove_empty(heap, slab);
    }
    if (slab->purge_age == SLAB_PURGE_AGED) {
        slab->purge_age = SLAB_PURGE_USED;
    }
    const unsigned clean_count = slab->clean_count;
    heap_uncount(heap, slab);
    unsigned got;
    if (options.random_refill) {
        for (got = 0; got < want && slab->free_count != 0; got++) {
            blocks[got] = slab_take_random(slab, &heap->random_state);
        }
    } else {
        got = slab_take(slab, want, blocks);
    }
    heap_count_in(heap, slab);
    if (unlikely(slab->purged)) {
        heap_note_wanted(heap, slab, clean_count - slab->clean_count);
    }
    if (slab->free_count == 0) {
        list_remove(&slab->bin_link);
        list_push_front(&heap->full, &slab->bin_link);
    }
    return got;
}

// A refill visits further slabs for so many blocks.
#define BLOCKS_FEW 4

unsigned heap_take(struct heap *heap, uint64_t class_index, unsigned want, void **blocks) {
    const struct bin *bin = &heap->bins[class_index];
    unsigned got = 0;
    // A slab is made, or an empty one begun, for the first block alone: what there is serves for now.
    while (got < want && (got == 0 || (got < BLOCKS_FEW && bin_has_begun_slab(bin)))) {
        struct run *slab = bin_slab_with_blocks(heap, class_index);
        if (slab == NULL) {
            break;
        }
        got += take_from(heap, slab, want - got, blocks + got);
    }
    heap_tell_bytes(heap);
    heap_count(heap, COUNTER_refills, 1);
    heap_count(heap, COUNTER_refilled_blocks, got);
    event_record_if_asked(EVENT_refill, page_owner(heap->id, class_index), got);
    return got;
}

FAST_PATH void put_and_count(struct heap *heap, struct run *slab, unsigned word, uint64_t bits) {
    const unsigned held = slab->free_count;
    slab_put(slab, word, bits);
    const uint64_t count = slab->free_count - held;
    const uint64_t bytes = count * size_classes[slab->class_index].block_bytes;
    heap->bins[slab->class_index].used_blocks -= count;
    heap->used_bytes -= bytes;
    heap->loose_bytes += bytes;
}

// While the heap keeps too much.
static MIDDLE_PATH void put_and_purge(struct heap *heap, struct run *slab, unsigned word,
                                      uint64_t bits) {
    const bool may_get_sparse = heap->budget_bytes != 0 && !slab_is_sparse(slab);
    put_and_count(heap, slab, word, bits);
    if (may_get_sparse && slab_is_sparse(slab) && !slab_is_empty(slab)) {
        heap_purge_sparse(heap, slab);
    }
}

// Puts checked blocks back and files the slab where it now belongs. That may destroy it.
FAST_PATH void put_bits(struct heap *heap, struct run *slab, unsigned word, uint64_t bits) {
    heap->put_since_purge = heap->put_since_early = true;
    if (unlikely(slab->free_count == 0)) {
        bin_file_partial(heap, slab);
    }
    if (likely(!heap->keeps_too_much)) {
        put_and_count(heap, slab, word, bits);
    } else {
        put_and_purge(heap, slab, word, bits);
    }
    if (unlikely(slab_is_empty(slab))) {
        bin_file_empty(heap, slab);
    }
}

// Blocks that follow one another in a magazine and lie in one word of a slab's bitmaps go home together: a stretch. One of another
// heap's slab waits, so that what comes later of the word goes with it: blocks of several producers take turns. The
// blocks are checked, and keep the slab alive.
struct stretch {
    struct run *slab;
    unsigned word;
    uint64_t bits;
    struct slab_word place;
};

#define STRETCHES_WAITING 8

struct flush {
    struct heap *heap;
    struct stretch *end;  // of those that wait
    unsigned sent_count;  // blocks that went to other heaps
    struct stretch waiting[STRETCHES_WAITING];
};

static void send_waiting(struct flush *flush) {
    for (const struct stretch *stretch = flush->waiting; stretch != flush->end; stretch++) {
        heap_publish(stretch->slab, stretch->word, stretch->bits);
        heap_count(flush->heap, COUNTER_remote_publishes, 1);
        flush->sent_count += bit_count(stretch->bits);
    }
    flush->end = flush->waiting;
}

// The one that waits of the word that contains an address, or NULL.
FAST_PATH struct stretch *waiting_with(struct flush *flush, uintptr_t address) {
    for (struct stretch *stretch = flush->end; stretch != flush->waiting;) {
        stretch--;
        if (slab_word_contains(&stretch->place, address)) {
            return stretch;
        }
    }
    return NULL;
}

static MIDDLE_PATH void wait_to_send(struct flush *flush, struct run *slab, unsigned word,
                                     uint64_t bits) {
    if (flush->end == flush->waiting + STRETCHES_WAITING) {
        send_waiting(flush);
    }
    *flush->end++ = (struct stretch){slab, word, bits, slab_word(slab, word)};
}

// How many of blocks[] follow one another `step` apart, of which the first four do. Four at a time, as long as all do.
FAST_PATH unsigned count_many(void *const *blocks, unsigned count, uintptr_t step) {
    void *const *at = blocks + 4;
    void *const *const end = blocks + count;
    uintptr_t next = (uintptr_t)blocks[0] + 4 * step;
    while (end - at >= 4 &&
           (((uintptr_t)at[0] ^ next) | ((uintptr_t)at[1] ^ (next + step)) |
            ((uintptr_t)at[2] ^ (next + 2 * step)) | ((uintptr_t)at[3] ^ (next + 3 * step))) == 0) {
        at += 4;
        next += 4 * step;
    }
    for (; at != end && (uintptr_t)*at == next; at++) {
        next += step;
    }
    return (unsigned)(at - blocks);
}

// The same, of which the first one does.
FAST_PATH unsigned count_following(void *const *blocks, unsigned count, uintptr_t step) {
    uintptr_t next = (uintptr_t)blocks[0] + step;
    unsigned n = 1;
    for (; n < count && (uintptr_t)blocks[n] == next; n++) {
        next += step;
        if (n == 3) {
            return count_many(blocks, count, step);
        }
    }
    return n;
}

// Adds to `bits` the blocks from number `*i` on that the word contains, and counts *i up to the first that it does not. Most lie beside
// each other: upward, in the order in which they were handed out, or downward, the newest one first.
FAST_PATH uint64_t stretch_on(const struct run *slab, unsigned word, struct slab_word place,
                              uint64_t bits, void *const *blocks, unsigned *i, unsigned count) {
    const uint64_t held = atomic_load_relaxed(place.held);
    uintptr_t last = 0;
    uint64_t mask = 0;
    while (*i < count && slab_word_contains(&place, (uintptr_t)blocks[*i])) {
        const uintptr_t address = (uintptr_t)blocks[*i];
        const uintptr_t step = address - last;
        const bool upward = step == place.block_bytes;
        if (upward || step == -(uintptr_t)place.block_bytes) {
            const unsigned from = bit_lowest(mask);
            const unsigned left = upward ? place.block_count - 1 - from : from;
            const unsigned n =
                count_following(blocks + *i, (unsigned)least_u64(count - *i, left), step);
            mask = bit_range(upward ? from + 1 : from - n, n);
            last = 0;
            *i += n;
        } else {
            mask = slab_word_bit(&place, address);
            last = address;
            *i += 1;
        }
        if (unlikely(mask == 0)) {
            misuse_report(MISUSE_INVALID_FREE, address);
            last = 0;
        } else if (unlikely(((bits | held) & mask) != 0)) {
            report_double_frees(slab, word, (bits | held) & mask);
            bits |= mask & ~held;
        } else {
            bits |= mask;
        }
    }
    return bits;
}

static MIDDLE_PATH unsigned waiting_on(struct stretch *stretch, void *const *blocks, unsigned i,
                                       unsigned count) {
    stretch->bits =
        stretch_on(stretch->slab, stretch->word, stretch->place, stretch->bits, blocks, &i, count);
    return i;
}

// The stretch that begins with block number `i` goes home, or waits. Returns the number of the first block behind it; *words
// counts those touched for it.
FAST_PATH unsigned put_stretch(struct flush *flush, void *const *blocks, unsigned i, unsigned count,
                               unsigned *words) {
    const uintptr_t address = (uintptr_t)blocks[i];
    struct stretch *waiting = waiting_with(flush, address);
    if (waiting != NULL) {
        return waiting_on(waiting, blocks, i, count);
    }
    struct run *slab = slab_find(address);
    const int index = slab == NULL ? -1 : slab_index(slab, address);
    i++;
    if (unlikely(index < 0)) {
        misuse_report(MISUSE_INVALID_FREE, address);
        return i;
    }
    const unsigned word = (unsigned)index / 64;
    uint64_t bits = bit((unsigned)index % 64);
    if (unlikely((atomic_load_relaxed(&slab->free_bits[word]) & bits) != 0)) {
        report_double_frees(slab, word, bits);
        return i;
    }
    // Scattered blocks need not know where the word ends.
    if (i < count && slab_may_share_word(slab, address, (uintptr_t)blocks[i])) {
        bits = stretch_on(slab, word, slab_word(slab, word), bits, blocks, &i, count);
    }
    *words += 1;
    if (atomic_load_relaxed(&slab->heap) == flush->heap) {
        put_bits(flush->heap, slab, word, bits);
    } else {
        wait_to_send(flush, slab, word, bits);
    }
    return i;
}

static void flush_begin(struct flush *flush, struct heap *heap) {
    flush->heap = heap;
    flush->end = flush->waiting;
    flush->sent_count = 0;
}

// `count` blocks went.
static void flush_end(struct flush *flush, unsigned count) {
    struct heap *heap = flush->heap;
    send_waiting(flush);
    heap_purge_excess(heap);
    heap_count(heap, COUNTER_flushes, 1);
    heap_count(heap, COUNTER_flushed_blocks, count - flush->sent_count);
    heap_count(heap, COUNTER_remote_blocks, flush->sent_count);
    event_record_if_asked(EVENT_flush, heap->id, count);
}

static MIDDLE_PATH unsigned put_blocks(struct heap *heap, void *const *blocks, unsigned count,
                                       unsigned words_max) {
    struct flush flush;
    flush_begin(&flush, heap);
    unsigned words = 0;
    unsigned i = 0;
    while (i < count && words < words_max) {
        i = put_stretch(&flush, blocks, i, count, &words);
    }
    flush_end(&flush, i);
    return i;
}

void heap_put(struct heap *heap, void *const *blocks, unsigned count) {
    put_blocks(heap, blocks, count, UINT32_MAX);
}

unsigned heap_put_few(struct heap *heap, void *const *blocks, unsigned count) {
    return put_blocks(heap, blocks, count, WORDS_FEW);
}

void heap_put_checked(struct heap *heap, struct run *slab, unsigned index) {
    put_bits(heap, slab, index / 64, bit(index % 64));
    heap_purge_excess(heap);
    heap_count(heap, COUNTER_flushes, 1);
    heap_count(heap, COUNTER_flushed_blocks, 1);
    event_record_if_asked(EVENT_flush, heap->id, 1);
}

static void push_remote(struct heap *heap, struct run *slab) {
    struct run *head = atomic_load_relaxed(&heap->remote_slabs);
    do {
        atomic_store_relaxed(&slab->remote_next, head);
    } while (!atomic_cas_weak_release(&heap->remote_slabs, &head, slab));
}

// Bits of a word that name no block that is out: held ones, and those behind the last block, which come when the
// slab that was here before had more.
static uint64_t bits_not_out(const struct run *slab, unsigned word) {
    return atomic_load_relaxed(&slab->free_bits[word]) | ~slab_word_blocks(slab, word);
}

void heap_publish(struct run *slab, unsigned word, uint64_t bits) {
    // The heap is read before the bits are set: until then the blocks keep the slab alive. Only a
    // block that was freed twice comes here after its slab's end; where another slab begins meanwhile, the
    // bitmap is not the one that has as many words. (So where loads are made in order, as on x86-64.)
    _Atomic(uint64_t) *const remote_bits = whole_load(&slab->remote_bits);
    struct heap *heap = atomic_load_relaxed(&slab->heap);
    if (unlikely(heap == NULL || word >= slab_words(slab) ||
                 whole_load(&slab->remote_bits) != remote_bits)) {
        report_double_frees(slab, word, bits);
        return;
    }
    const uint64_t held = bits_not_out(slab, word) & bits;
    if (unlikely(held != 0)) {
        report_double_frees(slab, word, held);
        bits &= ~held;
        if (bits == 0) {
            return;
        }
    }
    const uint64_t before = atomic_or_acq_rel(&remote_bits[word], bits);
    // Whoever found the word empty announces it; the others' bits go with that announcement.
    if (before == 0 && atomic_or_release(&slab->remote_summary, bit(word)) == 0) {
        push_remote(heap, slab);
    }
    report_double_frees(slab, word, before & bits);
}

void heap_publish_block(struct run *slab, void *block) {
    const int index = slab_index(slab, (uintptr_t)block);
    if (unlikely(index < 0)) {
        misuse_report(MISUSE_INVALID_FREE, (uintptr_t)block);
        return;
    }
    heap_publish(slab, (unsigned)index / 64, bit((unsigned)index % 64));
}

// Hands an announcement that reached the wrong heap on to the right one.
static void forward_remote(struct run *slab, struct heap *heap, uint64_t summary) {
    if (atomic_or_acq_rel(&slab->remote_summary, summary) == 0) {
        push_remote(heap, slab);
    }
}

// All blocks are held but for the bits of the lowest of these words: what the others name was freed
// twice.
static void require_last_word(struct run *slab, uint64_t summary) {
    for (uint64_t rest = summary & (summary - 1); rest != 0; rest &= rest - 1) {
        const unsigned word = bit_lowest(rest);
        report_double_frees(slab, word, atomic_exchange_acquire(&slab->remote_bits[word], 0));
    }
}

static unsigned collect_slab(struct heap *heap, struct run *slab, uint64_t summary) {
    unsigned count = 0;
    // A late announcement of an earlier slab in this place may name words this one has not.
    summary &= bit_range(0, slab_words(slab));
    for (; summary != 0; summary &= summary - 1) {
        const unsigned word = bit_lowest(summary);
        uint64_t bits = atomic_exchange_acquire(&slab->remote_bits[word], 0);
        const uint64_t held = bits & bits_not_out(slab, word);
        report_double_frees(slab, word, held);
        bits &= ~held;
        if (bits != 0) {
            count += bit_count(bits);
            const bool last = slab->free_count + bit_count(bits) == slab->block_count;
            if (last) {
                require_last_word(slab, summary);
            }
            put_bits(heap, slab, word, bits);
            if (last) {
                break;  // no block is out, and the slab may be gone
            }
        }
    }
    return count;
}

unsigned heap_collect(struct heap *heap) {
    unsigned count = 0;
    struct run *slab = atomic_exchange_acquire(&heap->remote_slabs, NULL);
    while (slab != NULL) {
        // The link is read before the summary is cleared: from then on others may push the slab.
        struct run *next = atomic_load_relaxed(&slab->remote_next);
        const uint64_t summary = atomic_exchange_acq_rel(&slab->remote_summary, 0);
        // The owner is read after the exchange: what it published before is then visible.
        struct heap *owner = atomic_load_relaxed(&slab->heap);
        if (likely(owner == heap)) {
            count += collect_slab(heap, slab, summary);
        } else if (owner != NULL) {
            forward_remote(slab, owner, summary);
        }
        slab = next;
    }
    heap_purge_excess(heap);
    heap_count(heap, COUNTER_remote_collected, count);
    return count;
}
