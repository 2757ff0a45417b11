// main() of every fault program: the mistake, then, when the program is still alive, a workload
// that would show overlapping or damaged blocks, then a normal end.
//
// Set by the runner: FAULT_THREAD=1 makes the mistake on a thread that ends before the workload;
// HAKMEM_ABORT=0 asks the allocator to report and go on.
#include "fault.h"

void about(const void *pointer) {
    behaviour_say("pointer 0x%zx", (size_t)(uintptr_t)pointer);
}

void about_block(const void *pointer, void *block) {
    about(pointer);
    behaviour_say("block 0x%zx %zu", (size_t)(uintptr_t)block, malloc_usable_size(block));
}

bool ignored(void) {
    const char *value = getenv("HAKMEM_ABORT");
    return value != NULL && strcmp(value, "0") == 0;
}

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
static void *integrity_workload(void *argument) {
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
            require(blocks[i].start != NULL);
            blocks[i].bytes = malloc_usable_size(blocks[i].start);
            require(blocks[i].bytes >= bytes);
        }
        sort_by_address(blocks, BLOCK_COUNT);
        for (size_t i = 1; i < BLOCK_COUNT; i++) {
            require_that(blocks[i - 1].start + blocks[i - 1].bytes <= blocks[i].start,
                         "live blocks overlap: %p of %zu bytes and %p", (void *)blocks[i - 1].start,
                         blocks[i - 1].bytes, (void *)blocks[i].start);
        }
        for (size_t i = 0; i < BLOCK_COUNT; i++) {
            size_t bytes = blocks[i].bytes < 4096 ? blocks[i].bytes : 4096;
            pattern_fill(blocks[i].start, bytes, i);
        }
        for (size_t i = 0; i < BLOCK_COUNT; i++) {
            size_t bytes = blocks[i].bytes < 4096 ? blocks[i].bytes : 4096;
            require_that(pattern_differs(blocks[i].start, bytes, i) == bytes,
                         "a live block of %zu bytes was damaged", blocks[i].bytes);
        }
        for (size_t i = 0; i < BLOCK_COUNT; i++) {
            free(blocks[i].start);
        }
    }
    require(munmap(blocks, BLOCK_COUNT * sizeof *blocks) == 0);
    return NULL;
}

static void *fault_body(void *argument) {
    (void)argument;
    fault();
    return NULL;
}

int main(void) {
    behaviour_require_allocator();
    if (getenv("FAULT_THREAD") != NULL) {
        on_other_thread(fault_body, NULL);
    } else {
        fault();
    }
    behaviour_say("after");
    if (ignored()) {
        // On a new thread first: it is the one that takes over what the mistake's thread left.
        on_other_thread(integrity_workload, NULL);
        integrity_workload(NULL);
        behaviour_require_sound_heap();
        behaviour_say("sound");
    }
    return 0;
}
