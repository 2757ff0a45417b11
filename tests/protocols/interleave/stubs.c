// What the explored sources need of the layers below, without system calls.
#include <string.h>

#include "base/check.h"
#include "config/counters.h"
#include "config/options.h"
#include "explorer.h"
#include "heap/misuse.h"
#include "os/events.h"
#include "os/lock.h"
#include "os/os.h"
#include "space/arena.h"
#include "space/metadata.h"
#include "stubs.h"

struct options options;
struct counters process_counters;
struct control control;
_Atomic(uintptr_t) lock_fork_owner;  // relaxed: no fork here; pairs with nothing

// What is not an atomic, and so not the explorer's, lies at the start of a piece.
#define PLAIN_BYTES 4096

static _Alignas(4096) char pool[1 << 18];
static size_t pool_used;

void stubs_begin(void) {
    memset(pool, 0, PLAIN_BYTES);
    pool_used = 0;
    explorer_memory(pool, PLAIN_BYTES);
}

void *metadata_alloc(size_t bytes) {
    void *piece = pool + pool_used;
    pool_used += (bytes + 63) & ~(size_t)63;
    EXPECT(pool_used <= sizeof pool);
    explorer_fresh(piece, bytes);
    return piece;
}

void metadata_free(void *piece, size_t bytes) {
    (void)piece;
    (void)bytes;
}

void *metadata_alloc_bitmaps(size_t bytes) {
    return metadata_alloc(bytes);
}

void metadata_free_bitmaps(void *piece, size_t bytes) {
    metadata_free(piece, bytes);
}

// A lock's holder is the only one whose last exchange it is: the waiting thread goes on when it is free.
void lock_acquire_slow(struct lock *lock) {
    uint32_t expected;
    do {
        explorer_wait(&lock->state, sizeof lock->state, 0);
        expected = 0;
    } while (!atomic_cas_acquire(&lock->state, &expected, 1));
}

// Nobody in the process reads events.
void event_record(enum event_kind kind, uint64_t a, uint64_t b) {
    (void)kind;
    (void)a;
    (void)b;
}

void lock_release_slow(struct lock *lock) {
    (void)lock;
}

bool lock_passes_for_fork(void) {
    return false;
}

void lock_init(struct lock *lock, enum lock_rank rank) {
    atomic_store_relaxed(&lock->state, 0);
    atomic_store_relaxed(&lock->holder, 0);
    lock->rank = rank;
}

size_t os_page_bytes(void) {
    return 4096;
}

bool os_purge(void *start, size_t bytes) {
    (void)start;
    (void)bytes;
    return false;
}

void *os_reserve(size_t bytes) {
    (void)bytes;
    return NULL;  // no flat map
}

bool os_commit(void *start, size_t bytes) {
    (void)start;
    (void)bytes;
    return true;
}

void check_violated(struct check *check, const char *invariant, uint64_t a, uint64_t b) {
    (void)a;
    (void)b;
    check->violations++;
    explorer_fail(invariant);
}
