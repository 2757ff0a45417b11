// What the learner decides: a pure function from what happened in a window of slow paths, and what was decided before, to
// decisions. No clock, no option, no cache: tests replay recorded windows (docs/LEARNING.md).
//
// A class that refills and flushes within one window sends blocks to the slabs that it soon wants again. More
// capacity makes that rarer, how much depends on the program: so a raise is a trial. The class's slow paths per
// processor time of the thread before it are kept, and when those afterwards are not clearly fewer, twice in a row,
// the raise is taken back. Both are of whole cycles: one window with which the class has both refilled and flushed, or several, up to the
// second turn from the one to the other. What comes and goes in bulk does one of the two for many windows, as often as before, and
// rests between.
//
// All capacities of a cache have a budget. When a raise does not fit, capacity comes first from classes that were not
// used for a while, then from the budget's reserve, then from the class whose capacity saves least. (One without slow
// paths that is in use has what it needs; nothing is known of what it would do with less.)
//
// Each raise that was taken back doubles the windows until the next one of the class, and each time that something was taken
// from a class those until the next time: a program that turns with the windows, or on purpose, gets
// fewer decisions the longer it does so.
#pragma once

#include "base/base.h"
#include "space/size_class.h"
#include "thread/capacity.h"

#define POLICY_DECISIONS_MAX (2 * SIZE_CLASS_COUNT + 2)

enum policy_knob {
    POLICY_KNOB_cap = 1,  // most blocks that a class of a cache may hold
    POLICY_KNOB_budget,   // bytes that all classes of a cache may hold
    // Of policy_memory.h, named as the options that bound them.
    POLICY_KNOB_huge_pages,    // 1: superslabs ask for huge pages
    POLICY_KNOB_excess_bytes,  // free bytes that may stay, in empty runs or in the slabs of a heap
    POLICY_KNOB_huge_cache_bytes,     // the same in mappings of freed huge blocks
    POLICY_KNOB_huge_block_pages,     // 1: huge blocks ask for huge pages
    POLICY_KNOB_slab_purge_delay_ms,  // how long free pages inside a heap's slabs stay
    POLICY_KNOB_purge_delay_ms,       // how long empty runs stay
    // Of policy_threads.h.
    POLICY_KNOB_thread_blocks,  // 1: a thread of a short life leaves its cached blocks to the next one
};

enum policy_signal {
    POLICY_SIGNAL_churn = 1,  // slow paths of the class for 1000 blocks that it moved
    POLICY_SIGNAL_gain,       // slow paths per processor time, after a raise: per cent of before
    POLICY_SIGNAL_idle,  // windows in which the class was not used, at most 255; 0: a raise that it did not grow by, or that showed nothing
    POLICY_SIGNAL_demand,    // bytes wanted beyond the budget; 0: a raise was taken back
    POLICY_SIGNAL_density,   // slow paths in a window for each MiB of the class's capacity
    POLICY_SIGNAL_resident,  // of 1000 bytes in use in the newest memory without huge pages
    POLICY_SIGNAL_refault,   // bytes that were given back and are wanted again; 0: none for a while
    POLICY_SIGNAL_successors,  // of 1000 threads that ended, those that had a successor soon
    POLICY_SIGNAL_touch,       // nanoseconds of the first touch of a huge page
};

struct policy_limits {
    uint64_t budget_bytes;      // what a cache has where nothing is learned
    uint64_t budget_bytes_max;  // the most a cache may have
    uint64_t start_bytes;       // what a class starts with
    // By class_group.
    uint64_t class_bytes_max[CLASS_GROUP_COUNT];
    uint32_t miss_permille[CLASS_GROUP_COUNT];  // operations that may reach the slabs
    uint32_t step_percent[CLASS_GROUP_COUNT];   // of the capacity, for one raise
};

// One class in one window.
struct policy_signals {
    uint32_t refills, flushes;
    uint32_t refilled_blocks, flushed_blocks;
    uint32_t capacity;  // blocks; 0: the class is not cached, and nothing is decided
    uint32_t limit;     // blocks that its capacity may grow to by itself
    bool used;          // what it caches has changed
};

struct policy_window {
    uint64_t cpu_ns;        // how long its thread had a processor; 0: nobody looked
    uint64_t budget_bytes;  // of the cache
    struct policy_signals classes[SIZE_CLASS_COUNT];
};

// Windows (of policy_memory.h: superslabs) until something may be done again, and how many these were at most so far; 0:
// never yet.
struct policy_pause {
    uint16_t left, length;
};

// Begins a pause twice as long as the longest so far: `first` at first, at most `most`.
void policy_pause_more(struct policy_pause *pause, uint16_t first, uint16_t most);

// What was seen of a class since its cycle began.
enum policy_cycle {
    POLICY_CYCLE_REFILLED = 1,  // since it began, or since its first turn
    POLICY_CYCLE_FLUSHED = 2,
    POLICY_CYCLE_HALF = 4,     // its first turn has come
    POLICY_CYCLE_UNTIMED = 8,  // nobody looked at the clock in one of its windows
    POLICY_CYCLE_WANTED = 16,  // the class wants a raise, and waits for the end of a timed cycle
};

// What is remembered of a class.
struct policy_class {
    uint32_t before;  // capacity before the raise on trial; 0: none is
    uint32_t
        rate_before;  // slow paths for 2^30 ns then: the higher of two cycles, in case of a pause in one
    uint32_t rate;          // of the latest cycle; 0: it was not timed, or says nothing any more
    uint32_t cycle_events;  // slow paths since the cycle began
    uint32_t
        cycle_time;  // processor time of the thread in those windows of it in which the class was used, in 64 ns
    struct policy_pause raise, take;
    uint8_t cycle;          // POLICY_CYCLE_ bits
    uint8_t cycle_windows;  // those windows
    uint8_t settling;       // cycles until the trial is judged
    uint8_t failures;       // judgements against it, one after another
    uint8_t idle;           // windows in which it was not used, at most UINT8_MAX
    uint8_t looks;  // times it was looked at since its last raise, which decide the next pause
};

// What is remembered of a cache; zeros at first.
struct policy_state {
    struct policy_class classes[SIZE_CLASS_COUNT];
    bool
        is_settled;  // no raise is on trial, none is wanted and no pause ends soon: the next window needs no cpu_ns
};

struct policy_decision {
    enum policy_knob knob;
    uint32_t class_index;  // SIZE_CLASS_COUNT: the knob is the whole cache's
    uint64_t from, to;
    enum policy_signal signal;
    uint64_t value;  // of the signal
};

// Who is told of decisions, in the order in which they must be taken: capacity is given back before it is given. An array
// of them would be the most of what a thread needs for a window.
struct policy_audience {
    void (*decided)(void *context, const struct policy_decision *decision);
    void *context;
};

// Decides after a window; the state follows. Returns the number of decisions, POLICY_DECISIONS_MAX at most. A window without
// cpu_ns decides nothing, it only ends the rest when a raise is wanted.
unsigned policy_step(struct policy_state *state, const struct policy_window *window,
                     const struct policy_limits *limits, const struct policy_audience *audience);
