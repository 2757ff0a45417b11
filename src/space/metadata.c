#include "space/metadata.h"

#include "base/bits.h"
#include "base/check.h"
#include "os/lock.h"
#include "os/os.h"

#define UNIT_BYTES CACHE_LINE_BYTES
// Processors fetch lines in pairs: structures of more than a line begin with a pair, so that two of which different threads
// have one seldom share one.
#define PAIR_UNITS 2
#define PAIR_BYTES (PAIR_UNITS * UNIT_BYTES)
// One mapping of this size at a time; only touched pages become resident.
#define CHUNK_BYTES (256 * KIB)

static struct metadata metadata = {.lock = LOCK_INITIAL(LOCK_RANK_METADATA)};
INSPECTABLE(metadata, metadata_state);

// A new chunk with room for `bytes` at a multiple of METADATA_ALIGNED_BYTES, or of less. False when the system has no memory.
static bool map_chunk(size_t bytes) {
    const size_t needed_bytes = METADATA_ALIGNED_BYTES + bytes;
    const size_t chunk_bytes =
        needed_bytes > CHUNK_BYTES / 4 ? align_up(needed_bytes, CHUNK_BYTES) : CHUNK_BYTES;
    char *start = os_map(chunk_bytes, os_page_bytes());
    if (start == NULL) {
        return false;
    }
    struct metadata_chunk *chunk = (void *)start;
    chunk->bytes = chunk_bytes;
    chunk->next = atomic_load_relaxed(&metadata.chunks);
    atomic_store_release(&metadata.chunks, chunk);
    metadata.fresh = start + align_up(sizeof *chunk, PAIR_BYTES);
    metadata.fresh_end = start + chunk_bytes;
    return true;
}

static void push_gap(char *start, size_t units) {
    struct free_piece *gap = (void *)start;
    gap->next = metadata.gaps[units];
    metadata.gaps[units] = gap;
    metadata.gap_lengths |= 1u << units;
}

// As a gap of whole pairs, and a single unit before it: all ends at a multiple of PAIR_BYTES, what is fresh as every gap of
// pairs.
static void put_gap(char *start, const char *end) {
    if (start < end && (uintptr_t)start % PAIR_BYTES != 0) {
        push_gap(start, 1);
        start += UNIT_BYTES;
    }
    const size_t pairs = (size_t)(end - start) / PAIR_BYTES;
    if (pairs != 0) {
        push_gap(start, pairs * PAIR_UNITS);
    }
}

// Of the shortest gap that is long enough, its lower part.
static void *take_from_gap(size_t units) {
    const uint32_t long_enough =
        units < METADATA_ALIGNED_UNITS ? metadata.gap_lengths & (~0u << units) : 0;
    if (long_enough == 0) {
        return NULL;
    }
    const unsigned length = bit_lowest(long_enough);
    struct free_piece *gap = metadata.gaps[length];
    metadata.gaps[length] = gap->next;
    if (gap->next == NULL) {
        metadata.gap_lengths &= ~(1u << length);
    }
    gap->next = NULL;
    put_gap((char *)gap + units * UNIT_BYTES, (char *)gap + length * UNIT_BYTES);
    return gap;
}

// What is left is fresh from a multiple of PAIR_BYTES on.
static void use_fresh(char *end) {
    atomic_bump_owned(&metadata.bytes, (uint64_t)(end - metadata.fresh));
    metadata.fresh = end;
}

static void *take_fresh(size_t bytes) {
    const size_t paired_bytes = align_up(bytes, PAIR_BYTES);
    if ((size_t)(metadata.fresh_end - metadata.fresh) < paired_bytes && !map_chunk(paired_bytes)) {
        return NULL;
    }
    char *start = metadata.fresh;
    use_fresh(start + paired_bytes);
    put_gap(start + bytes, metadata.fresh);
    return start;
}

static char *next_aligned(void) {
    return (char *)align_up((uintptr_t)metadata.fresh, METADATA_ALIGNED_BYTES);
}

static void *take_fresh_aligned(void) {
    // Chunks begin and end at multiples of it.
    if (next_aligned() >= metadata.fresh_end && !map_chunk(METADATA_ALIGNED_BYTES)) {
        return NULL;
    }
    char *start = next_aligned();
    put_gap(metadata.fresh, start);
    use_fresh(start + METADATA_ALIGNED_BYTES);
    return start;
}

// The first of a list of freed pieces, which is not empty.
static struct free_piece *pop(struct free_piece **list) {
    struct free_piece *piece = *list;
    *list = piece->next;
    return piece;
}

// Clears the first of a list, which is not empty, and gives up the lock.
static void *reuse_and_unlock(struct free_piece **list, size_t bytes) {
    struct free_piece *piece = pop(list);
    lock_release(&metadata.lock);
    return __builtin_memset(piece, 0, bytes);
}

static void *take(enum metadata_use use, size_t bytes) {
    bytes = align_up(bytes, UNIT_BYTES);
    const size_t units = bytes / UNIT_BYTES;
    lock_acquire(&metadata.lock);
    if (units <= RECYCLED_UNITS_MAX && metadata.recycled[use][units] != NULL) {
        return reuse_and_unlock(&metadata.recycled[use][units], bytes);
    }
    void *piece = take_from_gap(units);
    if (piece == NULL) {
        piece = take_fresh(bytes);
    }
    lock_release(&metadata.lock);
    return piece;
}

static void give(enum metadata_use use, void *piece, size_t bytes) {
    const size_t units = align_up(bytes, UNIT_BYTES) / UNIT_BYTES;
    if (units > RECYCLED_UNITS_MAX) {
        return;  // no structure of this size is ever freed
    }
    struct free_piece **list = &metadata.recycled[use][units];
    struct free_piece *freed = piece;
    lock_acquire(&metadata.lock);
    freed->next = *list;
    *list = freed;
    lock_release(&metadata.lock);
}

void *metadata_take_aligned(unsigned *count) {
    lock_acquire(&metadata.lock);
    void *first = metadata.recycled_aligned;
    if (first != NULL) {
        metadata.recycled_aligned = metadata.recycled_aligned->next_batch;
        *count = METADATA_ALIGNED_BATCH;
    } else {
        first = take_fresh_aligned();
        *count = 1;
    }
    lock_release(&metadata.lock);
    return first;
}

void metadata_give_aligned(void *first) {
    struct free_batch *batch = first;
    lock_acquire(&metadata.lock);
    batch->next_batch = metadata.recycled_aligned;
    metadata.recycled_aligned = batch;
    lock_release(&metadata.lock);
}

void *metadata_alloc(size_t bytes) {
    return take(METADATA_STRUCTURES, bytes);
}

void metadata_free(void *piece, size_t bytes) {
    give(METADATA_STRUCTURES, piece, bytes);
}

void *metadata_alloc_bitmaps(size_t bytes) {
    return take(METADATA_BITMAPS, bytes);
}

void metadata_free_bitmaps(void *piece, size_t bytes) {
    give(METADATA_BITMAPS, piece, bytes);
}

uint64_t metadata_bytes(void) {
    return atomic_load_relaxed(&metadata.bytes);
}

const struct metadata_chunk *metadata_chunks(void) {
    return atomic_load_acquire(&metadata.chunks);
}

// Bytes of the free pieces of a list, as long as these are no more than `most`: a piece that is freed twice would close
// a circle.
static uint64_t list_bytes(const struct free_piece *piece, size_t units, uint64_t most) {
    uint64_t bytes = 0;
    for (; piece != NULL && bytes <= most; piece = piece->next) {
        bytes += units * UNIT_BYTES;
    }
    return bytes;
}

size_t metadata_check(void) {
    struct check check = {"metadata", 0, 0};
    lock_acquire(&metadata.lock);
    check_that(&check, metadata.fresh <= metadata.fresh_end, "fresh <= its chunk's end",
               (uintptr_t)metadata.fresh, (uintptr_t)metadata.fresh_end);
    const uint64_t bytes = atomic_load_relaxed(&metadata.bytes);
    uint64_t free_bytes = 0;
    for (size_t use = 0; use < METADATA_USE_COUNT; use++) {
        for (size_t units = 0; units <= RECYCLED_UNITS_MAX; units++) {
            free_bytes += list_bytes(metadata.recycled[use][units], units, bytes);
        }
    }
    for (const struct free_batch *batch = metadata.recycled_aligned;
         batch != NULL && free_bytes <= bytes; batch = batch->next_batch) {
        const uint64_t batch_bytes =
            list_bytes((const struct free_piece *)batch, METADATA_ALIGNED_UNITS, bytes);
        check_equal(&check, "a batch of freed nodes is whole", batch_bytes,
                    METADATA_ALIGNED_BATCH * METADATA_ALIGNED_BYTES);
        free_bytes += batch_bytes;
    }
    for (unsigned units = 1; units < METADATA_ALIGNED_UNITS; units++) {
        free_bytes += list_bytes(metadata.gaps[units], units, bytes);
        check_that(&check, (metadata.gap_lengths >> units & 1u) == (metadata.gaps[units] != NULL),
                   "gap_lengths tells the lists that are not empty", metadata.gap_lengths, units);
    }
    check_that(&check, free_bytes <= bytes, "freed pieces are part of what was handed out",
               free_bytes, bytes);
    lock_release(&metadata.lock);
    return check.violations;
}

void metadata_fork_lock(void) {
    lock_acquire(&metadata.lock);
}

void metadata_fork_unlock(void) {
    lock_release(&metadata.lock);
}
