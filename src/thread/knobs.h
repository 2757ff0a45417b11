// Knobs: what slow paths read, and a profile or the learner (control/learner.c) turns. The hot paths read none.
// The learner's are in each cache and its magazines (cache.h); those of all threads, which a profile sets, are here.
#pragma once

#include "base/atomic.h"
#include "space/size_class.h"

// For more than a node holds there is room once the class has its magazine; the refills that follow bring it.
#define PREWARM_BLOCKS_MAX 4096

struct knobs {
    // Blocks that a thread takes in one batch (up to a node's) when the class gets its magazine, which then has room
    // for as many; 0: none. Constant after the start.
    uint16_t prewarm[SIZE_CLASS_COUNT];
};

HIDDEN extern struct knobs knobs;

// What happened to one class of one cache since the learner looked last; modulo 2^16 where there is no learner.
struct class_signals {
    uint16_t refills, flushes;
    uint16_t refilled_blocks, flushed_blocks;
};

// The learner looks at a cache whenever it has refilled and flushed so many times; where there is nothing to decide more
// seldom, as long as the signals can count. It looks after a refill, in malloc, whose longest calls ask the system for memory
// anyway; nothing in a free takes as long as a look. Only when so many flushes more have come without a refill it looks after
// one of those.
#define LEARNER_WINDOW_EVENTS 128
#define LEARNER_WINDOW_EVENTS_MAX 960
#define LEARNER_PATIENCE_EVENTS 64

struct thread_cache;

// What the control layer has to say to a thread's own cache.
typedef void knobs_hook(struct thread_cache *cache);

// Told of each cache that a thread ended with: whether the next thread came soon (lifecycle.h), which one that came later,
// or never, did not. Returns whether threads that end leave their blocks in their caches. Under the registry's lock.
typedef bool knobs_succession_hook(bool was_soon);

struct knobs_hooks {
    // Relaxed, each: NULL until the library's constructor sets them (control/learner.c), while threads of others' may
    // run already; they follow then. Pairs with nothing.
    _Atomic(knobs_hook *) window;  // after a window of events; no lock is held
    _Atomic(knobs_hook *)
        thread_start;  // a thread takes the cache, under the registry's lock, or has it in the child of a fork
    // Relaxed: as these; a thread takes the cache of one that ended. Pairs with nothing.
    _Atomic(knobs_succession_hook *) succession;
};
HIDDEN extern struct knobs_hooks knobs_hooks;

static inline void knobs_call(_Atomic(knobs_hook *) *place, struct thread_cache *cache) {
    knobs_hook *hook = atomic_load_relaxed(place);
    if (hook != NULL) {
        hook(cache);
    }
}

static inline bool knobs_tell_succession(bool was_soon) {
    knobs_succession_hook *hook = atomic_load_relaxed(&knobs_hooks.succession);
    return hook != NULL && hook(was_soon);
}

// As the options say. Before the first cache is made.
void knobs_start(void);

static inline unsigned knobs_prewarm(uint64_t class_index) {
    return knobs.prewarm[class_index];
}
