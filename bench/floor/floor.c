/* floor: a malloc that does as good as nothing, to show what the calls and the workload's own
 * loop cost. It is a peer in the tables, not an allocator: blocks are never reused, or, once a
 * thread has called floor_circle(), handed out again in a circle whether or not they were freed.
 * The workloads size the circle like their live set and leave out the check of contents. */
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define FLOOR_EXPORT __attribute__((visibility("default")))

enum { BLOCK_ALIGNMENT = 16, MAPPINGS_MAX = 1 << 16 };
/* Untouched pages of a chunk cost nothing. */
static const size_t chunk_bytes = (size_t)16 << 20;

/* The range this thread takes blocks from: `next` moves up to `end`. */
static __thread struct {
    uintptr_t next, end;
    uintptr_t circle; /* where `next` starts again; 0 when blocks are not reused */
} range;

FLOOR_EXPORT void *malloc(size_t bytes);
FLOOR_EXPORT void free(void *block);
FLOOR_EXPORT void *calloc(size_t count, size_t bytes);
FLOOR_EXPORT void *realloc(void *block, size_t bytes);
FLOOR_EXPORT int posix_memalign(void **block, size_t alignment, size_t bytes);
FLOOR_EXPORT void *aligned_alloc(size_t alignment, size_t bytes);
FLOOR_EXPORT void *memalign(size_t alignment, size_t bytes);
/* This thread's blocks come from a circle of `bytes` from here on; 0 gives the circle back. */
FLOOR_EXPORT void floor_circle(size_t bytes);

/* Every mapping, so that realloc can tell how far it may read. A mapping is never given back. */
static struct {
    uintptr_t start;
    _Atomic uintptr_t end; /* release when both are written, pairs with mapping_end's acquire */
} mappings[MAPPINGS_MAX];
static _Atomic size_t mapping_count; /* claimed entries: release and acquire as above */

static uintptr_t range_map(size_t bytes) {
    size_t index = atomic_fetch_add_explicit(&mapping_count, 1, memory_order_acq_rel);
    if (index >= MAPPINGS_MAX) {
        return 0;
    }
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return 0;
    }
    mappings[index].start = (uintptr_t)memory;
    atomic_store_explicit(&mappings[index].end, (uintptr_t)memory + bytes, memory_order_release);
    return (uintptr_t)memory;
}

/* The end of the mapping that holds the block: most often one of the newest. */
static uintptr_t mapping_end(uintptr_t block) {
    size_t index = atomic_load_explicit(&mapping_count, memory_order_acquire);
    index = index < MAPPINGS_MAX ? index : MAPPINGS_MAX;
    while (index-- > 0) {
        uintptr_t end = atomic_load_explicit(&mappings[index].end, memory_order_acquire);
        if (block < end && block >= mappings[index].start) {
            return end;
        }
    }
    return block;
}

/* Circles of threads that have ended, for their successors: without them every generation of
 * larson would pay for fresh pages. */
static struct {
    uintptr_t start;
    size_t bytes;
} spares[64];
static atomic_flag spares_lock = ATOMIC_FLAG_INIT;

static void spare_put(uintptr_t start, size_t bytes) {
    while (atomic_flag_test_and_set_explicit(&spares_lock, memory_order_acquire)) {
    }
    for (size_t i = 0; i < sizeof spares / sizeof spares[0]; i++) {
        if (spares[i].start == 0) {
            spares[i].start = start;
            spares[i].bytes = bytes;
            break;
        }
    }
    atomic_flag_clear_explicit(&spares_lock, memory_order_release);
}

static uintptr_t spare_take(size_t bytes) {
    uintptr_t start = 0;
    while (atomic_flag_test_and_set_explicit(&spares_lock, memory_order_acquire)) {
    }
    for (size_t i = 0; i < sizeof spares / sizeof spares[0] && start == 0; i++) {
        if (spares[i].start != 0 && spares[i].bytes == bytes) {
            start = spares[i].start;
            spares[i].start = 0;
        }
    }
    atomic_flag_clear_explicit(&spares_lock, memory_order_release);
    return start;
}

static __attribute__((noinline)) void *malloc_slow(size_t bytes) {
    if (range.circle != 0 && bytes <= range.end - range.circle) {
        range.next = range.circle + bytes;
        return (void *)range.circle;
    }
    size_t map_bytes = bytes > chunk_bytes / 2 ? bytes + chunk_bytes : chunk_bytes;
    uintptr_t start = bytes < PTRDIFF_MAX - chunk_bytes ? range_map(map_bytes) : 0;
    if (start == 0) {
        errno = ENOMEM;
        return NULL;
    }
    range.next = start + bytes;
    range.end = start + map_bytes;
    range.circle = 0;
    return (void *)start;
}

void *malloc(size_t bytes) {
    size_t rounded = (bytes + BLOCK_ALIGNMENT - 1) & ~(size_t)(BLOCK_ALIGNMENT - 1);
    uintptr_t block = range.next;
    if (__builtin_expect(rounded > range.end - block || rounded < bytes, 0)) {
        return malloc_slow(rounded < bytes ? bytes : rounded);
    }
    range.next = block + rounded;
    return (void *)block;
}

void free(void *block) {
    (void)block;
}

void *calloc(size_t count, size_t bytes) {
    size_t total;
    if (__builtin_mul_overflow(count, bytes, &total)) {
        errno = ENOMEM;
        return NULL;
    }
    void *block = malloc(total);
    return block == NULL || range.circle == 0 ? block : memset(block, 0, total);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
    if (alignment <= BLOCK_ALIGNMENT) {
        return malloc(bytes);
    }
    uintptr_t block = bytes + alignment < bytes ? 0 : (uintptr_t)malloc(bytes + alignment);
    return (void *)((block + alignment - 1) & ~(alignment - 1));
}

void *memalign(size_t alignment, size_t bytes) {
    return aligned_alloc(alignment, bytes);
}

int posix_memalign(void **block, size_t alignment, size_t bytes) {
    void *made = aligned_alloc(alignment, bytes);
    if (made == NULL) {
        return ENOMEM;
    }
    *block = made;
    return 0;
}

/* The block that this thread's last realloc returned, if it is still the newest: it grows where it
 * is, as nothing can be faster. */
static __thread struct { uintptr_t block, end; } grown;

void *realloc(void *block, size_t bytes) {
    const size_t rounded = (bytes + BLOCK_ALIGNMENT - 1) & ~(size_t)(BLOCK_ALIGNMENT - 1);
    if (block != NULL && (uintptr_t)block == grown.block && range.next == grown.end &&
        rounded <= range.end - grown.block) {
        range.next = grown.end = grown.block + rounded;
        return block;
    }
    /* The old size is not known: what follows the old block is copied too, as far as it is mapped. */
    void *made = malloc(bytes);
    grown.block = (uintptr_t)made;
    grown.end = range.next;
    if (block == NULL || made == NULL) {
        return made;
    }
    size_t readable = mapping_end((uintptr_t)block) - (uintptr_t)block;
    return memmove(made, block, bytes < readable ? bytes : readable);
}

void floor_circle(size_t bytes) {
    size_t rounded = (bytes + 4095) & ~(size_t)4095;
    if (bytes == 0) {
        if (range.circle != 0) {
            spare_put(range.circle, range.end - range.circle);
        }
        range.next = range.end = range.circle = 0;
        return;
    }
    uintptr_t start = spare_take(rounded);
    if (start == 0) {
        start = range_map(rounded);
    }
    if (start != 0) {
        range.next = range.circle = start;
        range.end = start + rounded;
    }
}
