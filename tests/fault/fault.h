// What each fault program shares. A program defines fault(), which makes one mistake; harness.c has
// main(). It tells the runner which pointer the mistake is about, so that the whole line on stderr
// can be compared.
#pragma once

#include "behaviour.h"

// The mistake. Returns when the allocator ignores it or has not noticed yet.
void fault(void);

// The pointer that the next line on stderr must name.
void about(const void *pointer);

// The same for a pointer into or to a block: the line must also name the block's start and its
// usable size, taken while the block is live.
void about_block(const void *pointer, void *block);

// Whether misuse is reported and ignored in this run, so that fault() can check what it got back.
bool ignored(void);

// Aligned up to 16, the only alignment of addresses that pass for blocks.
static inline void *align16(void *pointer) {
    return (void *)(((uintptr_t)pointer + 15) & ~(uintptr_t)15);
}

// Runs the body on a thread of its own and waits for its end.
static inline void on_other_thread(void *(*body)(void *), void *argument) {
    pthread_t thread;
    start_thread(&thread, 0, body, argument);
    require(pthread_join(thread, NULL) == 0);
}
