#include "heap/heap.h"

#include "base/bits.h"
#include "config/options.h"
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

// Blocks of one word that were freed twice: a line for each.
static SLOW_PATH void report_each(const struct run *slab, unsigned word, uint64_t bits) {
    for (; bits != 0; bits &= bits - 1) {
        misuse_report_freed(MISUSE_INVALID_FREE, slab, word * 64 + bit_lowest(bits));
    }
}

static inline void report_double_frees(const struct run *slab, unsigned word, uint64_t bits) {
    if (unlikely(bits != 0)) {
        report_each(slab, word, bits);
    }
}

// All blocks are held: one that is on its way back as well was freed twice.
static void require_nothing_remote(struct run *slab) {
    if (likely(atomic_load_relaxed(&slab->remote_summary) == 0)) {
        return;
    }
    for (unsigned w = 0; w < slab_words(slab); w++) {
        report_double_frees(slab, w, atomic_exchange_acquire(&slab->remote_bits[w], 0));
    }
}

static void destroy_slab(struct heap *heap, struct bin *bin, struct run *slab) {
    require_nothing_remote(slab);
    heap_spend(heap, slab->page_count * PAGE_BYTES);
    heap_uncount(heap, slab);
    list_remove(&slab->bin_link);
    bin->slab_count--;
    bin->empty_count--;
    heap_count(heap, COUNTER_slabs_released, 1);
    slab_destroy(slab);
}

static struct run *slab_with_blocks(struct heap *heap, uint64_t class_index) {
    struct bin *bin = &heap->bins[class_index];
    if (!list_is_empty(&bin->partial)) {
        return CONTAINER_OF(bin->partial.next, struct run, bin_link);
    }
    struct run *slab = slab_create(heap, heap->id, class_index);
    if (slab != NULL) {
        heap_count_in(heap, slab);
        list_push_front(&bin->partial, &slab->bin_link);
        bin->slab_count++;
        bin->empty_count++;
        heap_count(heap, COUNTER_slabs_created, 1);
    }
    return slab;
}

static unsigned take_from(struct heap *heap, struct bin *bin, struct run *slab, unsigned want,
                          void **blocks) {
    if (slab_is_empty(slab)) {
        bin->empty_count--;
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
    struct bin *bin = &heap->bins[class_index];
    unsigned got = 0;
    // A slab is made for the first block alone: what there is serves for now.
    while (got < want && (got == 0 || (got < BLOCKS_FEW && !list_is_empty(&bin->partial)))) {
        struct run *slab = slab_with_blocks(heap, class_index);
        if (slab == NULL) {
            break;
        }
        got += take_from(heap, bin, slab, want - got, blocks + got);
    }
    heap_tell_bytes(heap);
    heap_count(heap, COUNTER_refills, 1);
    heap_count(heap, COUNTER_refilled_blocks, got);
    event_record_if_asked(EVENT_refill, page_owner(heap->id, class_index), got);
    return got;
}

bool heap_has_blocks(const struct heap *heap, uint64_t class_index) {
    return !list_is_empty(&heap->bins[class_index].partial);
}

// A slab that holds less than this part of its blocks stays: it would soon be looked for again.
#define MOVED_PART 8

// Only so many are looked at from either end: both heaps are locked, and one may have 100,000 slabs that hold a block or two.
// What came back last is behind.
#define MOVED_LOOKS 16

static bool is_worth_moving(const struct run *slab) {
    return slab->free_count * MOVED_PART >= slab->block_count;
}

static struct run *slab_to_move(const struct bin *bin) {
    const struct list *front = bin->partial.next;
    const struct list *back = bin->partial.previous;
    for (unsigned i = 0; i < MOVED_LOOKS && front != &bin->partial; i++, front = front->next) {
        struct run *slab = CONTAINER_OF(front, struct run, bin_link);
        if (is_worth_moving(slab)) {
            return slab;
        }
    }
    for (unsigned i = 0; i < MOVED_LOOKS && back != &bin->partial; i++, back = back->previous) {
        struct run *slab = CONTAINER_OF(back, struct run, bin_link);
        if (is_worth_moving(slab)) {
            return slab;
        }
    }
    return NULL;
}

bool heap_move_slab(struct heap *from, struct heap *to, uint64_t class_index) {
    struct bin *source = &from->bins[class_index];
    struct bin *target = &to->bins[class_index];
    struct run *slab = slab_to_move(source);
    if (slab == NULL) {
        return false;
    }
    list_remove(&slab->bin_link);
    list_push_front(&target->partial, &slab->bin_link);
    source->slab_count--;
    target->slab_count++;
    source->empty_count -= slab_is_empty(slab);
    target->empty_count += slab_is_empty(slab);
    heap_uncount(from, slab);
    heap_count_in(to, slab);
    to->put_since_purge |= slab->purge_age != SLAB_PURGE_NONE;
    to->put_since_early |= slab->purge_age != SLAB_PURGE_NONE;
    atomic_store_relaxed(&slab->heap, to);
    heap_tell_bytes(from);
    heap_tell_bytes(to);
    heap_count(to, COUNTER_slabs_moved, 1);
    event_record(EVENT_slab_moved, slab->start, page_owner(to->id, class_index));
    return true;
}

// Destroys empty slabs of a class beyond `keep`; those used longest ago first. They are at the end of the list.
static void release_empty(struct heap *heap, struct bin *bin, unsigned keep) {
    struct list *link = bin->partial.previous;
    while (bin->empty_count > keep && link != &bin->partial && heap->budget_bytes != 0) {
        struct run *slab = CONTAINER_OF(link, struct run, bin_link);
        link = link->previous;
        if (slab_is_empty(slab)) {
            destroy_slab(heap, bin, slab);
        }
    }
}

// A slab of the class has emptied and stays; of the class for which that is longest ago none does any more.
static void note_retained(struct heap *heap, uint8_t class_index) {
    for (size_t i = 0; i < RETAINED_CLASSES; i++) {
        if (heap->retained[i] == class_index) {
            return;
        }
    }
    const uint8_t oldest = heap->retained[heap->retained_next];
    if (oldest != SIZE_CLASS_COUNT) {
        release_empty(heap, &heap->bins[oldest], 0);
    }
    heap->retained[heap->retained_next] = class_index;
    heap->retained_next = (uint8_t)((heap->retained_next + 1) % RETAINED_CLASSES);
}

// The last block of the slab came back. It stays for the next burst, or goes.
static MIDDLE_PATH void file_empty(struct heap *heap, struct run *slab) {
    struct bin *bin = &heap->bins[slab->class_index];
    bin->empty_count++;
    const unsigned keep = (unsigned)option_live(retain_slabs);
    if (bin->empty_count > keep && heap->budget_bytes != 0) {
        destroy_slab(heap, bin, slab);
        release_empty(heap, bin, keep);  // those for which no budget was left
        return;
    }
    // Used last, so that it can go when another one empties.
    list_remove(&slab->bin_link);
    list_push_back(&bin->partial, &slab->bin_link);
    note_retained(heap, slab->class_index);
}

// A slab that held no block is about to.
static MIDDLE_PATH void file_partial(struct heap *heap, struct run *slab) {
    list_remove(&slab->bin_link);
    list_push_back(&heap->bins[slab->class_index].partial, &slab->bin_link);
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
        file_partial(heap, slab);
    }
    if (likely(!heap->keeps_too_much)) {
        put_and_count(heap, slab, word, bits);
    } else {
        put_and_purge(heap, slab, word, bits);
    }
    if (unlikely(slab_is_empty(slab))) {
        file_empty(heap, slab);
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

// How many of blocks[], at least the first one, follow one another `step` apart.
FAST_PATH unsigned count_following(void *const *blocks, unsigned count, uintptr_t step) {
    uintptr_t next = (uintptr_t)blocks[0] + step;
    unsigned n = 1;
    for (; n < count && (uintptr_t)blocks[n] == next; n++) {
        next += step;
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

void heap_release_empty(struct heap *heap, unsigned keep) {
    for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        release_empty(heap, &heap->bins[i], keep);
    }
    heap_tell_bytes(heap);
}
