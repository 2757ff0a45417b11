#include "space/metadata.h"

#include "base/bits.h"
#include "base/check.h"
#include "os/lock.h"
#include "os/os.h"

#define UNIT_BYTES CACHE_LINE_BYTES
#define PIECE_ALIGN_MAX ((size_t)4096)
// One mapping of this size at a time; only touched pages become resident.
#define CHUNK_BYTES (256 * KIB)

static struct metadata metadata = {.lock = LOCK_INITIAL(LOCK_RANK_METADATA)};
INSPECTABLE(metadata, metadata_state);

// Where the first piece of a new chunk lies, behind the chunk's own header. NULL when the system has no memory.
static char *map_chunk(size_t alignment, size_t bytes) {
    const size_t offset = align_up(sizeof(struct metadata_chunk), alignment);
    const size_t chunk_bytes =
        bytes > CHUNK_BYTES / 4 ? align_up(offset + bytes, CHUNK_BYTES) : CHUNK_BYTES;
    char *start = os_map(chunk_bytes, os_page_bytes());
    if (start == NULL) {
        return NULL;
    }
    struct metadata_chunk *chunk = (void *)start;
    chunk->bytes = chunk_bytes;
    chunk->next = atomic_load_relaxed(&metadata.chunks);
    atomic_store_release(&metadata.chunks, chunk);
    metadata.fresh_end = start + chunk_bytes;
    return start + offset;
}

static void *take_fresh(size_t bytes) {
    size_t alignment = bytes & (~bytes + 1);
    if (alignment > PIECE_ALIGN_MAX) {
        alignment = PIECE_ALIGN_MAX;
    }
    char *start = (char *)align_up((uintptr_t)metadata.fresh, alignment);
    if (metadata.fresh == NULL || start > metadata.fresh_end ||
        (size_t)(metadata.fresh_end - start) < bytes) {
        start = map_chunk(alignment, bytes);
        if (start == NULL) {
            return NULL;
        }
    }
    metadata.fresh = start + bytes;
    atomic_bump_owned(&metadata.bytes, bytes);
    return start;
}

static void *take(enum metadata_use use, size_t bytes) {
    bytes = align_up(bytes, UNIT_BYTES);
    const size_t units = bytes / UNIT_BYTES;
    lock_acquire(&metadata.lock);
    struct free_piece *piece = NULL;
    if (units <= RECYCLED_UNITS_MAX && metadata.recycled[use][units] != NULL) {
        piece = metadata.recycled[use][units];
        metadata.recycled[use][units] = piece->next;
        lock_release(&metadata.lock);
        __builtin_memset(piece, 0, bytes);
        return piece;
    }
    void *fresh = take_fresh(bytes);
    lock_release(&metadata.lock);
    return fresh;
}

static void give(enum metadata_use use, void *piece, size_t bytes) {
    const size_t units = align_up(bytes, UNIT_BYTES) / UNIT_BYTES;
    if (units > RECYCLED_UNITS_MAX) {
        return;  // no structure of this size is ever freed
    }
    struct free_piece *freed = piece;
    lock_acquire(&metadata.lock);
    freed->next = metadata.recycled[use][units];
    metadata.recycled[use][units] = freed;
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

size_t metadata_check(void) {
    struct check check = {"metadata", 0, 0};
    lock_acquire(&metadata.lock);
    check_that(&check, metadata.fresh <= metadata.fresh_end, "fresh <= its chunk's end",
               (uintptr_t)metadata.fresh, (uintptr_t)metadata.fresh_end);
    const uint64_t bytes = atomic_load_relaxed(&metadata.bytes);
    uint64_t recycled_bytes = 0;
    for (size_t i = 0; i < METADATA_USE_COUNT * (RECYCLED_UNITS_MAX + 1); i++) {
        const size_t units = i % (RECYCLED_UNITS_MAX + 1);
        // A piece that is freed twice would close a circle.
        for (const struct free_piece *piece =
                 metadata.recycled[i / (RECYCLED_UNITS_MAX + 1)][units];
             piece != NULL && recycled_bytes <= bytes; piece = piece->next) {
            recycled_bytes += units * UNIT_BYTES;
        }
    }
    check_that(&check, recycled_bytes <= bytes, "freed pieces are part of what was handed out",
               recycled_bytes, bytes);
    lock_release(&metadata.lock);
    return check.violations;
}

void metadata_fork_lock(void) {
    lock_acquire(&metadata.lock);
}

void metadata_fork_unlock(void) {
    lock_release(&metadata.lock);
}
