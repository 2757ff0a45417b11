#include "heap/heap.h"

#include "base/bits.h"
#include "config/options.h"
#include "heap/bins.h"
#include "heap/heap_purge.h"
#include "heap/misuse.h"
#include "heap/slab.h"
#include "os/events.h"
#include "os/os.h"
#include "space/arena_purge.h"
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
        bin_unlink(heap, slab);
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

FAST_PATH void count_back(struct heap *heap, uint64_t class_index, uint64_t count) {
    const uint64_t bytes = count * size_classes[class_index].block_bytes;
    heap->bins[class_index].used_blocks -= count;
    heap->used_bytes -= bytes;
    heap->loose_bytes += bytes;
}

FAST_PATH void put_and_count(struct heap *heap, struct run *slab, unsigned word, uint64_t bits) {
    const unsigned held = slab->free_count;
    slab_put(slab, word, bits);
    count_back(heap, slab->class_index, slab->free_count - held);
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
    bool was_alone;       // the last stretch was one block, which came back to this heap
    struct stretch waiting[STRETCHES_WAITING];
};

static void send_waiting(struct flush *flush) {
    for (const struct stretch *stretch = flush->waiting; stretch != flush->end; stretch++) {
        struct heap *overfull = heap_publish(stretch->slab, stretch->word, stretch->bits);
        if (unlikely(overfull != NULL)) {
            flush->heap->overfull = overfull;
        }
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
FAST_PATH unsigned count_following(void *const *blocks, unsigned count, uintptr_t step) {
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

// Blocks of one word, as they are found. `odd` is not 0 once one came twice, or an address starts no block.
struct found {
    uint64_t bits, odd;
};

FAST_PATH unsigned find_block(struct found *found, const struct slab_word *place,
                              uintptr_t address) {
    const uint32_t offset = (uint32_t)(address - place->start);
    const uint32_t index = block_index(offset, place->reciprocal);
    found->odd |= (found->bits & bit(index)) | (index * place->block_bytes ^ offset);
    found->bits |= bit(index);
    return index;
}

// If the first four blocks lie beside each other, finds them and those of the word that go on so: upward, in the order in which they were
// handed out, or downward, the newest one first. Returns how many.
FAST_PATH unsigned find_beside(struct found *found, const struct slab_word *place,
                               void *const *blocks, unsigned count) {
    const uintptr_t first = (uintptr_t)blocks[0];
    const uintptr_t step = (uintptr_t)blocks[1] - first;
    const bool upward = step == place->block_bytes;
    if ((!upward && step != -(uintptr_t)place->block_bytes) ||
        (((uintptr_t)blocks[2] ^ (first + 2 * step)) |
         ((uintptr_t)blocks[3] ^ (first + 3 * step))) != 0) {
        return 0;
    }
    const unsigned index = find_block(found, place, first);
    const unsigned left = upward ? place->block_count - index : index + 1;
    if (left < 4) {
        return 1;
    }
    const unsigned n = count_following(blocks, (unsigned)least_u64(count, left), step);
    const uint64_t others = bit_range(upward ? index + 1 : index + 1 - n, n - 1);
    found->odd |= found->bits & others;
    found->bits |= others;
    return n;
}

// stretch_on() where something is odd, block by block: says what.
static SLOW_PATH uint64_t stretch_with_misuse(const struct run *slab, unsigned word,
                                              const struct slab_word *place, uint64_t bits,
                                              void *const *blocks, unsigned count) {
    const uint64_t held = atomic_load_relaxed(place->held);
    for (unsigned i = 0; i < count; i++) {
        const uint64_t block = slab_word_bit(place, (uintptr_t)blocks[i]);
        if (block == 0) {
            misuse_report(MISUSE_INVALID_FREE, (uintptr_t)blocks[i]);
        }
        report_double_frees(slab, word, (bits | held) & block);
        bits |= block & ~held;
    }
    return bits;
}

// So many blocks are found one by one before the next look whether some lie beside each other.
#define ALONE_FEW 16

// Adds to `bits` the blocks from number `*i` on that the word contains, and counts *i up to the first that it does not. Whether they are
// what they should be is asked once, of all together.
FAST_PATH uint64_t stretch_on(const struct run *slab, unsigned word, struct slab_word place,
                              uint64_t bits, void *const *blocks, unsigned *i, unsigned count) {
    struct found found = {0, 0};
    const unsigned first = *i;
    unsigned at = first;
    while (at < count && slab_word_contains(&place, (uintptr_t)blocks[at])) {
        const unsigned n =
            count - at < 4 ? 0 : find_beside(&found, &place, blocks + at, count - at);
        at += n;
        if (n == 0) {
            const unsigned end = (unsigned)least_u64(count, at + ALONE_FEW);
            do {
                find_block(&found, &place, (uintptr_t)blocks[at]);
            } while (++at < end && slab_word_contains(&place, (uintptr_t)blocks[at]));
        }
    }
    *i = at;
    const uint64_t held = atomic_load_relaxed(place.held);
    if (unlikely((found.odd | (found.bits & (bits | held))) != 0)) {
        return stretch_with_misuse(slab, word, &place, bits, blocks + first, at - first);
    }
    return bits | found.bits;
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
    flush->was_alone = false;
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
    const uint32_t block_bytes = size_classes[slab->class_index].block_bytes;
    const bool is_alone =
        i == count || !blocks_may_share_word(block_bytes, address, (uintptr_t)blocks[i]);
    if (!is_alone) {
        bits = stretch_on(slab, word, slab_word(slab, word), bits, blocks, &i, count);
    }
    *words += 1;
    if (atomic_load_relaxed(&slab->heap) == flush->heap) {
        flush->was_alone = is_alone;
        put_bits(flush->heap, slab, word, bits);
    } else {
        wait_to_send(flush, slab, word, bits);
    }
    return i;
}

// Blocks of one class that lie scattered over slabs of this heap, one by one. Returns the number of the first one that asks for more:
// another heap's, a slab's first or last, one that is not what it should be, one that may share a word with the next, the last one.
static MIDDLE_PATH unsigned put_scattered(struct heap *heap, void *const *blocks, unsigned i,
                                          unsigned count) {
    page_entry_atomic *const map = page_map_flat;
    if (unlikely(map == NULL) || unlikely(heap->keeps_too_much)) {
        return i;
    }
    const uint32_t kind =
        page_entry_kind(atomic_load_relaxed(&map[(uintptr_t)blocks[i] >> PAGE_SHIFT]));
    const uint64_t class_index = kind - PAGE_KIND_SLAB;
    if (unlikely(class_index >= SIZE_CLASS_COUNT)) {
        return i;
    }
    const struct size_class size_class = size_classes[class_index];
    const unsigned first = i;
    for (; i + 1 < count; i++) {
        const uintptr_t address = (uintptr_t)blocks[i];
        const uint64_t entry = atomic_load_relaxed(&map[address >> PAGE_SHIFT]);
        if (unlikely(page_entry_kind(entry) != kind) ||
            blocks_may_share_word(size_class.block_bytes, (uintptr_t)blocks[i + 1], address)) {
            break;
        }
        struct run *slab = page_entry_run(entry);
        const uint32_t offset = (uint32_t)(address - slab->start);
        const uint32_t index = block_index(offset, size_class.reciprocal);
        if (unlikely(atomic_load_relaxed(&slab->heap) != heap) ||
            unlikely(index * size_class.block_bytes != offset) ||
            unlikely(index >= size_class.block_count) ||
            unlikely(slab->free_count - 1u >= size_class.block_count - 2u)) {
            break;
        }
        _Atomic(uint64_t) *const word = &slab->free_bits[index / 64];
        const uint64_t held = atomic_load_relaxed(word);
        const uint64_t block = bit(index % 64);
        if (unlikely((held & block) != 0)) {
            break;
        }
        atomic_store_relaxed(word, held | block);
        slab_put_count(slab, index / 64, 1);
    }
    count_back(heap, class_index, i - first);
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
        if (words_max == UINT32_MAX && flush.was_alone && i < count) {
            i = put_scattered(heap, blocks, i, count);
        }
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

// Returns the bytes of slabs that now wait to be collected there.
static uint64_t push_remote(struct heap *heap, struct run *slab) {
    struct run *head = atomic_load_relaxed(&heap->remote_slabs);
    const uint64_t bytes = slab->page_count * PAGE_BYTES;
    do {
        atomic_store_relaxed(&slab->remote_next, head);
    } while (!atomic_cas_weak_release(&heap->remote_slabs, &head, slab));
    return atomic_add_relaxed(&heap->waiting_bytes, bytes) + bytes;
}

// Bits of a word that name no block that is out: held ones, and those behind the last block, which come when the
// slab that was here before had more.
static uint64_t bits_not_out(const struct run *slab, unsigned word) {
    return atomic_load_relaxed(&slab->free_bits[word]) | ~slab_word_blocks(slab, word);
}

struct heap *heap_publish(struct run *slab, unsigned word, uint64_t bits) {
    // The heap is read before the bits are set: until then the blocks keep the slab alive. Only a
    // block that was freed twice comes here after its slab's end; where another slab begins meanwhile, the
    // bitmap is not the one that has as many words. (So where loads are made in order, as on x86-64.)
    _Atomic(uint64_t) *const remote_bits = whole_load(&slab->remote_bits);
    struct heap *heap = atomic_load_relaxed(&slab->heap);
    if (unlikely(heap == NULL || word >= slab_words(slab) ||
                 whole_load(&slab->remote_bits) != remote_bits)) {
        report_double_frees(slab, word, bits);
        return NULL;
    }
    const uint64_t held = bits_not_out(slab, word) & bits;
    if (unlikely(held != 0)) {
        report_double_frees(slab, word, held);
        bits &= ~held;
        if (bits == 0) {
            return NULL;
        }
    }
    uint64_t waiting_bytes = 0;
    const uint64_t before = atomic_or_acq_rel(&remote_bits[word], bits);
    // Whoever found the word empty announces it; the others' bits go with that announcement.
    if (before == 0 && atomic_or_release(&slab->remote_summary, bit(word)) == 0) {
        waiting_bytes = push_remote(heap, slab);
    }
    report_double_frees(slab, word, before & bits);
    return unlikely(waiting_bytes > heap_waiting_bound()) ? heap : NULL;
}

struct heap *heap_publish_block(struct run *slab, void *block) {
    const int index = slab_index(slab, (uintptr_t)block);
    if (unlikely(index < 0)) {
        misuse_report(MISUSE_INVALID_FREE, (uintptr_t)block);
        return NULL;
    }
    return heap_publish(slab, (unsigned)index / 64, bit((unsigned)index % 64));
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
    atomic_store_relaxed(&heap->waiting_bytes, 0);
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

#define NS_PER_MS UINT64_C(1000000)

// Whether a thread that had a processor for so long may give back early what an option would have wait.
static bool ran_long_enough(uint64_t cpu_ns, uint64_t option_ms) {
    return cpu_ns / NS_PER_MS >= greatest_u64(1, option_ms / PURGE_EARLY_PART);
}

void heap_purge_at_end(struct heap *heap, uint64_t cpu_ns) {
    const uint64_t bytes = refault_bytes_affordable(cpu_ns);
    if (option_live(learn) == 0 || heap->loose_bytes > bytes ||
        !ran_long_enough(cpu_ns, option_live(slab_purge_delay_ms))) {
        return;
    }
    heap_release_empty(heap, false);
    heap->put_since_purge |= heap_purge_early(heap, true);
    if (ran_long_enough(cpu_ns, option_live(purge_delay_ms))) {
        arena_purge_small(bytes);
    }
}
