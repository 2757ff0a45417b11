// After the mistake: many blocks of all kinds, which must be disjoint and keep their contents. Runs on
// any allocator. Asks for no usable size: that call may notice what malloc and free do not.
#include "misuse.h"

#define require_sound(condition, ...)             \
    do {                                          \
        if (!(condition)) {                       \
            misuse_end(END_CORRUPT, __VA_ARGS__); \
        }                                         \
    } while (0)

enum { BLOCK_COUNT = 12000 };

struct block {
    unsigned char *start;
    size_t bytes;
};

static void sift(struct block *blocks, size_t at, size_t count) {
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= count) {
            return;
        }
        if (child + 1 < count && blocks[child + 1].start > blocks[child].start) {
            child++;
        }
        if (blocks[child].start <= blocks[at].start) {
            return;
        }
        struct block moved = blocks[at];
        blocks[at] = blocks[child];
        blocks[child] = moved;
        at = child;
    }
}

// In place: qsort may allocate.
static void sort_by_address(struct block *blocks, size_t count) {
    for (size_t at = count / 2; at > 0; at--) {
        sift(blocks, at - 1, count);
    }
    for (size_t end = count - 1; end > 0; end--) {
        struct block moved = blocks[0];
        blocks[0] = blocks[end];
        blocks[end] = moved;
        sift(blocks, 0, end);
    }
}

// Many blocks of all kinds at once, those sizes above all that the programs misuse: disjoint, and
// each keeps its contents.
void *integrity_workload(void *argument) {
    static const size_t misused[] = {16, 64, 208, 640, 2000, 8192};
    (void)argument;
    struct block *blocks = (struct block *)test_memory(BLOCK_COUNT * sizeof *blocks);
    uint64_t seed = 1;
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < BLOCK_COUNT; i++) {
            size_t bytes = i % 2 == 0      ? misused[random_below(&seed, 6)]
                           : i % 1000 == 1 ? 200 * KIB
                           : i % 4000 == 3 ? 5 * MIB
                                           : random_log_size(&seed, 20000);
            blocks[i].start = (unsigned char *)malloc(bytes);
            require_sound(blocks[i].start != NULL, "malloc(%zu) fails", bytes);
            blocks[i].bytes = bytes;
        }
        sort_by_address(blocks, BLOCK_COUNT);
        for (size_t i = 1; i < BLOCK_COUNT; i++) {
            require_sound(blocks[i - 1].start + blocks[i - 1].bytes <= blocks[i].start,
                          "live blocks overlap: %p of %zu bytes and %p",
                          (void *)blocks[i - 1].start, blocks[i - 1].bytes,
                          (void *)blocks[i].start);
        }
        for (size_t i = 0; i < BLOCK_COUNT; i++) {
            size_t bytes = blocks[i].bytes < 4096 ? blocks[i].bytes : 4096;
            pattern_fill(blocks[i].start, bytes, i);
        }
        for (size_t i = 0; i < BLOCK_COUNT; i++) {
            size_t bytes = blocks[i].bytes < 4096 ? blocks[i].bytes : 4096;
            require_sound(pattern_differs(blocks[i].start, bytes, i) == bytes,
                          "a live block of %zu bytes was damaged", blocks[i].bytes);
        }
        for (size_t i = 0; i < BLOCK_COUNT; i++) {
            free(blocks[i].start);
        }
    }
    require(munmap(blocks, BLOCK_COUNT * sizeof *blocks) == 0);
    return NULL;
}
