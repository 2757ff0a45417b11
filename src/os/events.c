#include "os/events.h"

#include "os/os.h"

struct events events;

SLOW_PATH void event_record(enum event_kind kind, uint64_t a, uint64_t b) {
    const uint64_t number = atomic_add_relaxed(&events.next, 1);
    struct event *event = &events.ring[number % EVENT_COUNT];
    atomic_store_relaxed(&event->stamp, 0);
    atomic_fence_release();
    atomic_store_relaxed(&event->ticks, os_ticks());
    atomic_store_relaxed(&event->thread, os_thread_pointer());
    atomic_store_relaxed(&event->a, a);
    atomic_store_relaxed(&event->b, b);
    atomic_store_release(&event->stamp, number << 8 | kind);
}

void event_clock_set(uint64_t ticks, uint64_t ms) {
    if (atomic_load_relaxed(&events.first.ticks) == 0) {
        atomic_store_relaxed(&events.first.ticks, ticks);
        atomic_store_relaxed(&events.first.ms, ms);
    }
    atomic_store_relaxed(&events.latest.ticks, ticks);
    atomic_store_relaxed(&events.latest.ms, ms);
}
