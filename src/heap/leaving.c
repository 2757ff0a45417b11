#include "heap/leaving.h"

#include "base/bits.h"
#include "os/events.h"
#include "os/os.h"
#include "space/arena_pages.h"

#define table huge_table_state

// At most so much goes by one call: the kernel makes the process's other threads wait as long, where they map, unmap
// or touch new memory. About a millisecond.
#define PART_BYTES (32 * MIB)

void leaving_add(struct huge *huge) {
    huge->unmapper = os_thread_pointer();
    huge->unmapping = 0;
    huge->leaving_number = ++table.leaving_number;
    huge_move_to(huge, HUGE_LEAVING);
}

struct huge *leaving_add_part(uintptr_t start, size_t bytes) {
    struct huge *part = huge_unused();
    if (part != NULL) {
        whole_store_release(&part->start, start);
        whole_store(&part->usable_bytes, bytes);
        part->mapped_bytes = bytes;
        part->freed_ms = 0;
        leaving_add(part);
    }
    return part;
}

bool leaving_purge(uintptr_t start, size_t bytes) {
    bool done = true;
    for (size_t at = 0; done && at < bytes; at += PART_BYTES) {
        done = os_purge((void *)(start + at), least_u64(PART_BYTES, bytes - at));
    }
    return done;
}

// Unmaps from the end on. Returns the bytes that the system refuses.
static size_t unmap_in_parts(uintptr_t start, size_t bytes) {
    while (bytes != 0) {
        const size_t part_bytes = least_u64(PART_BYTES, bytes);
        if (os_unmap((void *)(start + bytes - part_bytes), part_bytes)) {
            bytes -= part_bytes;
        } else {
            // A part may lie amid what is one mapping for the system, which has none left to divide it into.
            return part_bytes != bytes && os_unmap((void *)start, bytes) ? 0 : bytes;
        }
    }
    return 0;
}

// What stays mapped is not to stay in memory.
SLOW_PATH static void empty_refused(struct huge *huge, size_t left_bytes) {
    const size_t bytes = least_u64(left_bytes, huge->usable_bytes);
    huge->emptied = leaving_purge(huge->start, bytes);
    if (!huge->emptied && huge->uncleared) {
        __builtin_memset((void *)huge->start, 0, bytes);
        huge->emptied = 1;
    }
    huge->uncleared = 0;
}

static void unmap(struct huge *huge) {
    const uintptr_t start = huge->start;
    const size_t bytes = huge->mapped_bytes;
    // A fork waits until there is no call under way: as long as threads begin others.
    const bool keeps_lock = table.forking_count != 0;
    huge->unmapping = 1;
    if (likely(!keeps_lock)) {
        lock_release(&table.lock);
    }
    const size_t left_bytes = unmap_in_parts(start, bytes);
    if (unlikely(left_bytes != 0 && !huge->emptied)) {
        empty_refused(huge, left_bytes);
    }
    if (left_bytes != bytes) {
        event_record(EVENT_huge_unmapped, start + left_bytes, bytes - left_bytes);
    }
    if (likely(!keeps_lock)) {
        lock_acquire(&table.lock);
    }
    if (left_bytes != bytes) {
        whole_store(&huge->usable_bytes, left_bytes);
        huge->mapped_bytes = left_bytes;
        huge_forget_seams(huge, start + left_bytes);
    }
}

// A descriptor has left the list.
static void tell_waiting(void) {
    atomic_bump_owned(&table.left_count, 1u);
    for (uint32_t i = 0; i < table.waiting_count; i++) {
        os_futex_wake_one(&table.left_count);
    }
}

size_t leaving_unmap(struct huge *huge) {
    unmap(huge);
    const size_t left_bytes = huge->mapped_bytes;
    huge_move_to(huge, HUGE_UNUSED);
    tell_waiting();
    return left_bytes;
}

// One that this thread added and does not unmap already, below a signal handler that it is in; or NULL.
static struct huge *find_own(void) {
    const uintptr_t self = os_thread_pointer();
    for (struct list *link = table.leaving.next; link != &table.leaving; link = link->next) {
        struct huge *huge = CONTAINER_OF(link, struct huge, link);
        if (huge->unmapper == self && !huge->unmapping) {
            return huge;
        }
    }
    return NULL;
}

// Whether another thread's call is under way whose number is at most that.
static bool is_another_leaving(uint64_t last_number) {
    const uintptr_t self = os_thread_pointer();
    for (struct list *link = table.leaving.next; link != &table.leaving; link = link->next) {
        const struct huge *huge = CONTAINER_OF(link, struct huge, link);
        if (huge->unmapper != self && huge->leaving_number <= last_number) {
            return true;
        }
    }
    return false;
}

size_t leaving_unmap_and_unlock(void) {
    size_t gone_bytes = 0;
    for (struct huge *huge = find_own(); huge != NULL; huge = find_own()) {
        const size_t bytes = huge->mapped_bytes;
        unmap(huge);
        gone_bytes += bytes - huge->mapped_bytes;
        if (huge->mapped_bytes == 0) {
            huge_move_to(huge, HUGE_UNUSED);
        } else {
            huge_keep_again(huge);
        }
        tell_waiting();
    }
    arena_note_beside(table.live_bytes + atomic_load_relaxed(&table.kept_bytes));
    lock_release(&table.lock);
    return gone_bytes;
}

static void await(uint64_t last_number) {
    while (is_another_leaving(last_number)) {
        const uint32_t seen_count = atomic_load_relaxed(&table.left_count);
        table.waiting_count++;
        lock_release(&table.lock);
        lock_sleep(&table.left_count, seen_count);
        lock_acquire(&table.lock);
        // 0 in the child of a fork in a signal handler that came meanwhile.
        if (table.waiting_count != 0) {
            table.waiting_count--;
        }
    }
}

void leaving_await(void) {
    await(table.leaving_number);
}

void leaving_await_all(void) {
    table.forking_count++;
    await(UINT64_MAX);
    if (table.forking_count != 0) {
        table.forking_count--;
    }
}
