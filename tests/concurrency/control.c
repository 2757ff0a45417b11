// What the sanitizers and the internal checks of each flavour must find, or their silence about the
// other tests means nothing: a planted fault for each, in the ways the allocator's own state could go
// wrong.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "api/alloc.h"

static struct thread_cache *published;

// What statistics would be if the tops were read and written without atomics.
static void *count_without_atomics(void *argument) {
    (void)argument;
    uint64_t sum = 0;
    for (int i = 0; i < 1000; i++) {
        sum += (uintptr_t)published->heap.random_state;
    }
    return (void *)(uintptr_t)sum;
}

static int race(void) {
    pthread_t reader;
    hakmem_dealloc(hakmem_alloc(100));
    published = thread_cache;
    if (pthread_create(&reader, NULL, count_without_atomics, NULL) != 0) {
        return 2;
    }
    for (int i = 0; i < 1000; i++) {
        published->heap.random_state++;
    }
    return pthread_join(reader, NULL);
}

static int overflow(volatile size_t index) {
    uint64_t words[4] = {1, 2, 3, 4};
    return words[index] == 5;
}

static int shift(volatile unsigned count) {
    return (int)((UINT64_C(1) << count) & 1);
}

// Two heaps' locks, and the order that could be the other way round in another thread.
static int rank(void) {
    static struct lock heap, other_heap;
    lock_init(&heap, LOCK_RANK_HEAP);
    lock_init(&other_heap, LOCK_RANK_HEAP);
    lock_acquire(&heap);
    lock_acquire(&other_heap);
    return 0;
}

// As where the call that takes it was forgotten.
static int release(void) {
    static struct lock heap;
    lock_init(&heap, LOCK_RANK_HEAP);
    lock_release(&heap);
    return 0;
}

int main(int count, char **values) {
    if (count == 2 && strcmp(values[1], "race") == 0) {
        return race();
    }
    if (count == 2 && strcmp(values[1], "overflow") == 0) {
        return overflow((size_t)count + 2);
    }
    if (count == 2 && strcmp(values[1], "shift") == 0) {
        return shift((unsigned)count + 62);
    }
    if (count == 2 && strcmp(values[1], "rank") == 0) {
        return rank();
    }
    if (count == 2 && strcmp(values[1], "release") == 0) {
        return release();
    }
    fprintf(stderr, "usage: control race|overflow|shift|rank|release\n");
    return 2;
}
