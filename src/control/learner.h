// The learner: after each window of slow paths of a cache it asks the policy (policy.h), turns the knobs of that cache, and
// writes down why. It runs in the thread whose cache it is, at the end of a slow path; there is no thread of its own, no timer, and nothing in
// a hot path. What it decides of memory itself (policy_memory.h) it is asked where superslabs and huge blocks take memory, where memory that was given back
// is wanted again or has aged, and where a heap's slabs were looked through; of threads (policy_threads.h) where one takes a cache. What was decided, and the windows it was decided on, stay in two rings in static memory for readers
// outside of the process (`hakmem inspect --decisions`, docs/LEARNING.md).
#pragma once

#include "base/atomic.h"
#include "control/policy.h"

#define DECISION_COUNT 256
#define RECORDED_COUNT 1024

struct decision {
    // From 1; 0 while the row is written: acquire as the 0 is put over the number of a row that is whole, and a release fence; release with
    // the number after the others. A reader outside that finds the same number before and after has a whole row.
    _Atomic(uint64_t) number;
    // Relaxed, each: written by the thread that the number was given to; pairs with nothing.
    _Atomic(uint64_t) ms;        // of the monotonic clock; of a cache's as of its last tick
    _Atomic(uint64_t) from, to;  // in the knob's unit
    _Atomic(uint64_t) value;     // of the signal
    _Atomic(uint32_t) heap;      // number; 0: of memory of all heaps
    _Atomic(uint8_t) class_index;
    _Atomic(uint8_t) knob, signal;  // enum policy_knob, enum policy_signal
};

// One class in one window, as it was.
struct recorded {
    // As of a decision: acquire and a release fence with the 0, release after the others.
    _Atomic(uint64_t) number;
    // Relaxed, each, as of a decision; pairs with nothing.
    _Atomic(uint64_t) cpu_ns;        // processor time of the thread in the window; 0: nobody looked
    _Atomic(uint64_t) budget_bytes;  // of the cache
    _Atomic(uint32_t) window;        // of its heap
    _Atomic(uint32_t) capacity, limit;
    _Atomic(uint32_t) heap;
    _Atomic(uint16_t) refills, flushes, refilled_blocks, flushed_blocks;
    _Atomic(uint8_t) class_index, used;
};

struct decision_log {
    // Rows so far. Relaxed: each thread takes numbers; pairs with nothing.
    _Atomic(uint64_t) decided, recorded;
    struct decision decisions[DECISION_COUNT];  // number n is at n % DECISION_COUNT
    struct recorded windows[RECORDED_COUNT];    // the same
};

HIDDEN extern struct decision_log decision_log;

// Before the first cache is made.
void learner_start(void);
