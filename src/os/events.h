// The latest events of the slow paths, for readers outside of the process: a ring in static memory, written by any
// thread without a lock, read by nobody in the process but snapshots (the clock: by any thread that is content with the
// latest look). What it costs: docs/decisions/0010-inspect.md.
//
// An event's numbers are stored before its stamp, which was 0 meanwhile: a reader that finds the same stamp before
// and after has them together, unless the whole ring went by in the same moment.
#pragma once

#include "base/atomic.h"
#include "base/base.h"
#include "config/control.h"

#define EVENT_COUNT 256

// EVENT_<name>, one per row. 0 is none.
#define EVENT(name, a, b, when, help) EVENT_##name,
enum event_kind {
    EVENT_NONE,
#include "os/events.def"
};

struct event {
    // Relaxed: written by the thread that the number was given to; pairs with nothing.
    _Atomic(uint64_t) ticks;   // os_ticks()
    _Atomic(uint64_t) thread;  // os_thread_pointer()
    _Atomic(uint64_t) a, b;
    // Number of the event << 8 | enum event_kind; 0 while it is written. Release after the others; there is no
    // acquire in the process.
    _Atomic(uint64_t) stamp;
};

// Two looks at both clocks: what a tick is.
struct event_clock {
    // Relaxed: written at a thread's ticks, each alone; pairs with nothing.
    _Atomic(uint64_t) ticks, ms;
};

struct events {
    // Events so far. Relaxed: each thread takes a number; pairs with nothing.
    _Atomic(uint64_t) next;
    struct event_clock first, latest;
    struct event ring[EVENT_COUNT];  // event number n is at n % EVENT_COUNT
};

HIDDEN extern struct events events;

void event_record(enum event_kind kind, uint64_t a, uint64_t b);

// For kinds that are recorded only while somebody has asked for them.
static inline void event_record_if_asked(enum event_kind kind, uint64_t a, uint64_t b) {
    if (unlikely(atomic_load_relaxed(&control.events) != 0)) {
        event_record(kind, a, b);
    }
}

// A look at both clocks: os_ticks() and os_clock_ms() of now.
void event_clock_set(uint64_t ticks, uint64_t ms);

// os_clock_ms() at the latest look: for what happens because a thread has just looked.
static inline uint64_t event_clock_ms(void) {
    return atomic_load_relaxed(&events.latest.ms);
}
