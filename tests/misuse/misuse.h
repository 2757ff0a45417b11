// What the programs share. Each defines mistake(), which makes one mistake, or asks for something
// impossible and checks the answer; harness.c has main(). A program tells the runner which pointer
// the mistake is about, so that the whole line on stderr can be compared.
#pragma once

#include "behaviour.h"

#ifdef __cplusplus
extern "C" {
#endif

// Returns when the allocator ignores the mistake or has not noticed yet.
void mistake(void);

// The pointer that the next line on stderr must name.
void about(const void *pointer);

// The same for a pointer into or to a block: the line must also name the block's start and its
// usable size, taken while the block is live.
void about_block(const void *pointer, void *block);

// Whether misuse is reported and ignored in this run, so that mistake() can check what it got back.
bool ignored(void);

// How a program ends when it neither ran through (0) nor failed on its own account (1).
enum misuse_end {
    END_CORRUPT = 3,  // the workload found overlapping or damaged blocks
    END_BAD = 4,      // the allocator broke the contract of a call
    END_ABSENT = 5,   // the allocator has no such function
};

__attribute__((noreturn, format(printf, 2, 3))) void misuse_end(enum misuse_end status,
                                                                const char *format, ...);

#define contract(condition)                                                  \
    do {                                                                     \
        if (!(condition)) {                                                  \
            misuse_end(END_BAD, "not so: %s (errno %d)", #condition, errno); \
        }                                                                    \
    } while (0)

void *integrity_workload(void *argument);

// Aligned up to 16, the only alignment of addresses that pass for blocks.
static inline void *align16(void *pointer) {
    return (void *)(((uintptr_t)pointer + 15) & ~(uintptr_t)15);
}

// Bytes from a small block of 16n - 1 bytes to the next: also where the usable size is what was asked
// for, such a request fits the block that 16n bytes get elsewhere.
static inline size_t block_distance(void *block) {
    return (malloc_usable_size(block) + 15) & ~(size_t)15;
}

// Runs the body on a thread of its own and waits for its end.
static inline void on_other_thread(void *(*body)(void *), void *argument) {
    pthread_t thread;
    start_thread(&thread, 0, body, argument);
    require(pthread_join(thread, NULL) == 0);
}

// The body of a thread that frees what it is given.
static inline void *free_argument(void *argument) {
    free(argument);
    return NULL;
}

#ifdef __cplusplus
}
#endif
