#include "fake_os.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/bits.h"
#include "fake_memory.h"

// linux/futex.h
#define FUTEX_WAIT_PRIVATE (0 | 128)
#define FUTEX_WAKE_PRIVATE (1 | 128)

#define RANGES_MAX 32768

// A stretch of one state within one mapping. Sorted by address; what lies between is unmapped. Pages that
// were moved are a piece of their own in the mapping they were moved to: only within a piece can they be
// moved again or lengthened.
struct range {
    uintptr_t start, end;
    uint32_t mapping;
    uint32_t piece;
    enum fake_state state;
    enum os_huge_pages wish;
};

static struct {
    pthread_mutex_t lock;
    uintptr_t start, end;  // the machine's addresses
    size_t page_bytes;
    struct range ranges[RANGES_MAX];
    size_t range_count;
    uint32_t last_mapping;
    uint64_t clock_ms;
    _Atomic(uint64_t) cpu_ns;
    unsigned processors;
    _Atomic(uint64_t) touch_ns;
    uint64_t random_state;
    size_t bytes_max, ranges_max;
    uint64_t purged_bytes, split_bytes;
    bool tolerant;
    uint64_t breaches;
    // Order to fail: `countdown` calls of `kind` until it begins; 0 with `failing` false: none.
    enum os_call kind;
    uint64_t countdown;
    bool failing, from_then_on;
    uint64_t struck;
    bool loses_destination;
    uintptr_t locked_start, locked_end;
    void (*watch)(enum os_call call, void *start, size_t bytes);
} machine = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .page_bytes = 4096,
    .clock_ms = 1000,
    .random_state = 0x5851f42d4c957f2d,
};

struct os_call_counters os_call_counters;

// ---- Ranges ----

__attribute__((format(printf, 1, 2))) static bool breach(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    machine.breaches++;
    if (!machine.tolerant) {
        fputs("fake_os: contract broken: ", stderr);
        vfprintf(stderr, format, arguments);
        fputs("\n", stderr);
        abort();
    }
    va_end(arguments);
    return false;
}

static void enter(void) {
    pthread_mutex_lock(&machine.lock);
    if (machine.start == 0) {
        // A page of the real system at least: the memory underneath is protected in those.
        machine.page_bytes = greatest_u64(machine.page_bytes, getauxval(AT_PAGESZ));
        // An odd place: nothing may count on alignment it did not ask for.
        machine.start = real_machine() + machine.page_bytes;
        machine.end = machine.start + MACHINE_BYTES - machine.page_bytes;
    }
}

static void leave(void) {
    pthread_mutex_unlock(&machine.lock);
}

// Index of the first range that ends above an address.
static size_t first_above(uintptr_t address) {
    size_t low = 0;
    size_t high = machine.range_count;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (machine.ranges[middle].end > address) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

static void insert(size_t index, struct range range) {
    if (machine.range_count == RANGES_MAX) {
        fputs("fake_os: too many ranges\n", stderr);
        abort();
    }
    memmove(&machine.ranges[index + 1], &machine.ranges[index],
            (machine.range_count - index) * sizeof range);
    machine.ranges[index] = range;
    machine.range_count++;
}

static void drop(size_t index) {
    machine.range_count--;
    memmove(&machine.ranges[index], &machine.ranges[index + 1],
            (machine.range_count - index) * sizeof machine.ranges[0]);
}

// Makes a range begin at `address` if one contains it.
static void split(uintptr_t address) {
    const size_t index = first_above(address);
    if (index < machine.range_count && machine.ranges[index].start < address) {
        struct range upper = machine.ranges[index];
        upper.start = address;
        machine.ranges[index].end = address;
        insert(index + 1, upper);
    }
}

// Joins neighbours of one mapping and state.
static void join_around(uintptr_t start, uintptr_t end) {
    size_t index = first_above(start == 0 ? 0 : start - 1);
    while (index + 1 < machine.range_count && machine.ranges[index].start <= end) {
        struct range *lower = &machine.ranges[index];
        const struct range *upper = lower + 1;
        if (lower->end == upper->start && lower->mapping == upper->mapping &&
            lower->piece == upper->piece && lower->state == upper->state &&
            lower->wish == upper->wish) {
            lower->end = upper->end;
            drop(index + 1);
        } else {
            index++;
        }
    }
}

static size_t mapped_bytes(void) {
    size_t bytes = 0;
    for (size_t i = 0; i < machine.range_count; i++) {
        bytes += machine.ranges[i].end - machine.ranges[i].start;
    }
    return bytes;
}

// Whether start..end lies within one mapping, all of it in one of the `states` (a set of bits).
// Says what is wrong otherwise.
static bool within_one(const char *call, uintptr_t start, size_t bytes, unsigned states) {
    const uintptr_t end = start + bytes;
    if (bytes == 0 || (start | bytes) % machine.page_bytes != 0) {
        return breach("%s: %#zx bytes at %#zx are no whole pages", call, bytes, start);
    }
    size_t index = first_above(start);
    const uint32_t mapping = index < machine.range_count ? machine.ranges[index].mapping : 0;
    for (uintptr_t reached = start; reached < end; index++) {
        if (index == machine.range_count || machine.ranges[index].start > reached) {
            return breach("%s: %#zx is not mapped", call, reached);
        }
        const struct range *range = &machine.ranges[index];
        if (range->mapping != mapping) {
            return breach("%s: %#zx..%#zx reaches into another mapping", call, start, end);
        }
        if ((states & 1u << range->state) == 0) {
            return breach("%s: %#zx is in state %d", call, reached, (int)range->state);
        }
        reached = range->end;
    }
    return true;
}

// As within_one(), and within one piece of the mapping.
static bool within_one_piece(const char *call, uintptr_t start, size_t bytes, unsigned states) {
    if (!within_one(call, start, bytes, states)) {
        return false;
    }
    const size_t first = first_above(start);
    for (size_t i = first; i < machine.range_count && machine.ranges[i].start < start + bytes;
         i++) {
        if (machine.ranges[i].piece != machine.ranges[first].piece) {
            return breach("%s: %#zx..%#zx reaches into another piece", call, start, start + bytes);
        }
        // What is advised otherwise is a mapping of its own for the system.
        if (machine.ranges[i].wish != machine.ranges[first].wish) {
            return breach("%s: %#zx..%#zx is advised differently", call, start, start + bytes);
        }
    }
    return true;
}

#define ANY_STATE (1u << FAKE_INACCESSIBLE | 1u << FAKE_READABLE | 1u << FAKE_WRITABLE)

// The lowest free place, aligned; 0 when there is none.
static uintptr_t find_room(size_t bytes, size_t alignment) {
    uintptr_t place = align_up(machine.start, alignment);
    for (size_t i = 0; i < machine.range_count; i++) {
        if (machine.ranges[i].start >= place && machine.ranges[i].start - place >= bytes) {
            return place;
        }
        if (machine.ranges[i].end > place) {
            place = align_up(machine.ranges[i].end, alignment);
        }
    }
    return place <= machine.end && machine.end - place >= bytes ? place : 0;
}

// The call splits at most two ranges: whether the machine has room for that.
static bool may_split(void) {
    return machine.ranges_max == 0 || machine.range_count + 2 <= machine.ranges_max;
}

static bool may_map(size_t bytes) {
    return may_split() && (machine.bytes_max == 0 || mapped_bytes() + bytes <= machine.bytes_max);
}

static void insert_mapping(uintptr_t start, size_t bytes, enum fake_state state) {
    machine.last_mapping++;
    insert(first_above(start), (struct range){start, start + bytes, machine.last_mapping,
                                              machine.last_mapping, state, OS_HUGE_PAGES_DEFAULT});
    real_map(start, bytes, state);
}

static void *add_mapping(size_t bytes, size_t alignment, enum fake_state state) {
    const uintptr_t start = may_map(bytes) ? find_room(bytes, alignment) : 0;
    if (start == 0) {
        return NULL;
    }
    insert_mapping(start, bytes, state);
    return (void *)start;
}

static void set_state(uintptr_t start, size_t bytes, enum fake_state state) {
    split(start);
    split(start + bytes);
    for (size_t i = first_above(start);
         i < machine.range_count && machine.ranges[i].start < start + bytes; i++) {
        machine.ranges[i].state = state;
    }
    join_around(start, start + bytes);
    real_protect(start, bytes, state);
}

static void remove_ranges(uintptr_t start, size_t bytes) {
    split(start);
    split(start + bytes);
    const size_t index = first_above(start);
    while (index < machine.range_count && machine.ranges[index].start < start + bytes) {
        drop(index);
    }
    real_forget(start, bytes);
}

// ---- Failures and counting ----

// Counts a call; true when it is to be refused.
static bool refuse(enum os_call call) {
    atomic_add_relaxed(&os_call_counters.calls[call], 1);
    const bool meant = machine.kind == call || (machine.kind == FAKE_ANY && call != OS_RANDOM);
    if (machine.countdown != 0 && meant) {
        machine.countdown--;
        machine.failing = machine.countdown == 0;
    }
    const bool refused = machine.failing && meant;
    machine.struck += refused;
    if (refused && !machine.from_then_on) {
        machine.failing = false;
    }
    return refused;
}

static bool answer(bool done) {
    if (!done) {
        atomic_add_relaxed(&os_call_counters.failures, 1);
    }
    leave();
    return done;
}

static void *answer_place(void *place) {
    return answer(place != NULL) ? place : NULL;
}

static bool check_request(const char *call, size_t bytes, size_t alignment) {
    if (bytes == 0 || bytes % machine.page_bytes != 0 || !is_power_of_two(alignment) ||
        alignment < machine.page_bytes) {
        return breach("%s: %#zx bytes aligned to %#zx", call, bytes, alignment);
    }
    return true;
}

// ---- os.h ----

size_t os_page_bytes(void) {
    enter();
    const size_t bytes = machine.page_bytes;
    leave();
    return bytes;
}

void *os_map(size_t bytes, size_t alignment) {
    enter();
    if (refuse(OS_MMAP) || !check_request("os_map", bytes, alignment)) {
        return answer_place(NULL);
    }
    return answer_place(add_mapping(bytes, alignment, FAKE_WRITABLE));
}

void *os_reserve(size_t bytes) {
    enter();
    if (refuse(OS_MMAP) || !check_request("os_reserve", bytes, machine.page_bytes)) {
        return answer_place(NULL);
    }
    return answer_place(add_mapping(bytes, machine.page_bytes, FAKE_READABLE));
}

void *os_reserve_aligned(size_t bytes, size_t alignment) {
    enter();
    if (refuse(OS_MMAP) || !check_request("os_reserve_aligned", bytes, alignment)) {
        return answer_place(NULL);
    }
    return answer_place(add_mapping(bytes, alignment, FAKE_INACCESSIBLE));
}

static bool protect(const char *call, void *start, size_t bytes, enum fake_state state) {
    enter();
    const bool done =
        !refuse(OS_MPROTECT) && within_one(call, (uintptr_t)start, bytes, ANY_STATE) && may_split();
    if (done) {
        set_state((uintptr_t)start, bytes, state);
    }
    return answer(done);
}

bool os_commit(void *start, size_t bytes) {
    return protect("os_commit", start, bytes, FAKE_WRITABLE);
}

bool os_guard(void *start, size_t bytes) {
    return protect("os_guard", start, bytes, FAKE_INACCESSIBLE);
}

// Not of the machine: the library's own pages.
bool os_protect(void *start, size_t bytes, bool writable) {
    real_protect((uintptr_t)start, bytes, writable ? FAKE_WRITABLE : FAKE_READABLE);
    return true;
}

static void tell_watch(enum os_call call, void *start, size_t bytes) {
    if (machine.watch != NULL) {
        machine.watch(call, start, bytes);
    }
}

bool os_unmap(void *start, size_t bytes) {
    tell_watch(OS_MUNMAP, start, bytes);
    enter();
    const bool done =
        !refuse(OS_MUNMAP) && within_one("os_unmap", (uintptr_t)start, bytes, ANY_STATE);
    if (done) {
        remove_ranges((uintptr_t)start, bytes);
    }
    return answer(done);
}

bool os_purge(void *start, size_t bytes) {
    tell_watch(OS_MADVISE, start, bytes);
    enter();
    const bool locked =
        (uintptr_t)start < machine.locked_end && (uintptr_t)start + bytes > machine.locked_start;
    const bool refused = refuse(OS_MADVISE) || locked;
    if (!within_one("os_purge", (uintptr_t)start, bytes, 1u << FAKE_WRITABLE)) {
        return answer(false);
    }
    // "On false the contents are unknown": half of them are gone, or those before what is locked.
    size_t gone_bytes = refused ? align_down(bytes / 2, machine.page_bytes) : bytes;
    if (locked) {
        gone_bytes = machine.locked_start - least_u64((uintptr_t)start, machine.locked_start);
    }
    if (gone_bytes != 0) {
        require_real(syscall(SYS_madvise, start, gone_bytes, MADV_DONTNEED) == 0, "madvise");
    }
    machine.purged_bytes += refused ? 0 : bytes;
    return answer(!refused);
}

void os_advise_huge_pages(void *start, size_t bytes, enum os_huge_pages wish) {
    if (wish == OS_HUGE_PAGES_DEFAULT) {
        return;
    }
    enter();
    const bool done = !refuse(OS_MADVISE) &&
                      within_one("os_advise_huge_pages", (uintptr_t)start, bytes, ANY_STATE);
    if (done) {
        split((uintptr_t)start);
        split((uintptr_t)start + bytes);
        for (size_t i = first_above((uintptr_t)start);
             i < machine.range_count && machine.ranges[i].start < (uintptr_t)start + bytes; i++) {
            machine.ranges[i].wish = wish;
        }
        join_around((uintptr_t)start, (uintptr_t)start + bytes);
    }
    answer(done);
}

void os_split_huge_pages(void *start, size_t bytes) {
    enter();
    const bool done = !refuse(OS_MADVISE) && within_one("os_split_huge_pages", (uintptr_t)start,
                                                        bytes, 1u << FAKE_WRITABLE);
    machine.split_bytes += done ? bytes : 0;
    answer(done);
}

size_t os_resident_bytes(void *start, size_t bytes) {
    enter();
    size_t resident_bytes = 0;
    if (!refuse(OS_MINCORE) &&
        within_one("os_resident_bytes", (uintptr_t)start, bytes, ANY_STATE)) {
        const size_t page_bytes = getauxval(AT_PAGESZ);  // of the real machine
        for (size_t at = 0; at < bytes; at += page_bytes) {
            unsigned char in_memory = 0;
            // An emulator does not tell of pages without access.
            if (syscall(SYS_mincore, (char *)start + at, page_bytes, &in_memory) == 0) {
                resident_bytes += (in_memory & 1) * page_bytes;
            }
        }
    }
    leave();
    return resident_bytes;
}

static bool resize(uintptr_t start, size_t old_bytes, size_t new_bytes) {
    if (new_bytes < old_bytes) {
        remove_ranges(start + new_bytes, old_bytes - new_bytes);
        return true;
    }
    struct range *last = &machine.ranges[first_above(start + old_bytes - 1)];
    const size_t next = first_above(start + old_bytes);
    const uintptr_t room_end =
        next == machine.range_count ? machine.end : machine.ranges[next].start;
    // The same range may go on behind: that is no room either.
    if (last->end != start + old_bytes || room_end - start < new_bytes ||
        !may_map(new_bytes - old_bytes)) {
        return false;
    }
    last->end = start + new_bytes;
    real_map(start + old_bytes, new_bytes - old_bytes, FAKE_WRITABLE);
    return true;
}

bool os_resize(void *start, size_t old_bytes, size_t new_bytes) {
    enter();
    bool done = !refuse(OS_MREMAP) &&
                within_one_piece("os_resize", (uintptr_t)start, old_bytes, 1u << FAKE_WRITABLE);
    if (done && (new_bytes == 0 || new_bytes % machine.page_bytes != 0)) {
        done = breach("os_resize: to %#zx bytes", new_bytes);
    }
    if (!done) {
        return answer(false);
    }
    const bool has_room = resize((uintptr_t)start, old_bytes, new_bytes);
    leave();
    return has_room;  // no failure: see os_call_counters
}

static void make_piece(uintptr_t start, size_t bytes, enum os_huge_pages wish) {
    machine.last_mapping++;
    for (size_t i = first_above(start);
         i < machine.range_count && machine.ranges[i].start < start + bytes; i++) {
        machine.ranges[i].piece = machine.last_mapping;
        machine.ranges[i].wish = wish;
    }
}

void fake_os_lose_destination(void) {
    machine.loses_destination = true;
}

// The kernel has unmapped the destination of a move that it refused, and another thread has mapped something there.
static enum os_moved lose(uintptr_t destination, size_t bytes) {
    machine.loses_destination = false;
    remove_ranges(destination, bytes);
    insert_mapping(destination, bytes, FAKE_WRITABLE);
    answer(false);
    return OS_DESTINATION_LOST;
}

enum os_moved os_move(void *start, size_t old_bytes, void *destination, size_t new_bytes,
                      bool writable) {
    enter();
    if (machine.loses_destination && !writable) {
        return lose((uintptr_t)destination, new_bytes);
    }
    const bool done =
        !refuse(OS_MREMAP) &&
        within_one_piece("os_move", (uintptr_t)start, old_bytes, 1u << FAKE_WRITABLE) &&
        within_one("os_move (destination)", (uintptr_t)destination, new_bytes,
                   1u << (writable ? FAKE_WRITABLE : FAKE_INACCESSIBLE)) &&
        (new_bytes >= old_bytes || breach("os_move: to a smaller place")) && may_split();
    if (done) {
        split((uintptr_t)destination);
        split((uintptr_t)destination + new_bytes);
        make_piece((uintptr_t)destination, new_bytes,
                   machine.ranges[first_above((uintptr_t)start)].wish);
        set_state((uintptr_t)destination, new_bytes, FAKE_WRITABLE);
        // What is behind the moved pages is new.
        require_real(syscall(SYS_madvise, destination, new_bytes, MADV_DONTNEED) == 0, "madvise");
        memcpy(destination, start, old_bytes);
        remove_ranges((uintptr_t)start, old_bytes);
    }
    return answer(done) ? OS_MOVED : OS_MOVE_REFUSED;
}

void *os_move_anywhere(void *start, size_t old_bytes, size_t new_bytes, size_t alignment) {
    enter();
    const bool may_move =
        !refuse(OS_MREMAP) && check_request("os_move_anywhere", new_bytes, alignment) &&
        within_one_piece("os_move_anywhere", (uintptr_t)start, old_bytes, 1u << FAKE_WRITABLE) &&
        may_map(new_bytes - old_bytes);
    const uintptr_t place = may_move ? find_room(new_bytes, alignment) : 0;
    if (place != 0) {
        const enum os_huge_pages wish = machine.ranges[first_above((uintptr_t)start)].wish;
        insert_mapping(place, new_bytes, FAKE_WRITABLE);
        make_piece(place, new_bytes, wish);
        memcpy((void *)place, start, old_bytes);
        remove_ranges((uintptr_t)start, old_bytes);
    }
    return answer_place((void *)place);
}

void os_futex_wait_ms(_Atomic(uint32_t) *word, uint32_t expected, uint32_t most_ms) {
    const struct timespec most = {most_ms / 1000, most_ms % 1000 * 1000000};
    atomic_add_relaxed(&os_call_counters.calls[OS_FUTEX], 1);
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, &most, NULL, 0);
}

void os_futex_wait(_Atomic(uint32_t) *word, uint32_t expected) {
    os_futex_wait_ms(word, expected, UINT32_MAX);
}

void os_futex_wake_one(_Atomic(uint32_t) *word) {
    atomic_add_relaxed(&os_call_counters.calls[OS_FUTEX], 1);
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

uint32_t os_thread_id(void) {
    return (uint32_t)syscall(SYS_gettid);
}

bool os_thread_has_ended(void) {
    uint64_t blocked = 0;
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &blocked, sizeof blocked);
    return (blocked & bit(OS_SIGNAL_OF_CANCEL - 1)) != 0;
}

bool os_thread_is_gone(uint64_t process_id, uint32_t thread_id) {
    return kill((pid_t)process_id, 0) == 0 && syscall(SYS_tgkill, process_id, thread_id, 0) != 0;
}

uint64_t os_clock_ms(void) {
    enter();
    atomic_add_relaxed(&os_call_counters.calls[OS_CLOCK], 1);
    const uint64_t now_ms = machine.clock_ms;
    leave();
    return now_ms;
}

uint64_t os_clock_ms_locked(void) {
    return os_clock_ms();
}

unsigned os_processors(void) {
    return machine.processors == 0 ? 1 : machine.processors;
}

uint64_t os_thread_cpu_ns(void) {
    atomic_add_relaxed(&os_call_counters.calls[OS_CLOCK], 1);
    return atomic_load_relaxed(&machine.cpu_ns);
}

// Of which there is one clock.
uint64_t os_process_cpu_ns(void) {
    return os_thread_cpu_ns();
}

uint64_t os_touch_ns(void *start) {
    *(volatile char *)start = 0;
    return fake_os_wish(start) == OS_HUGE_PAGES_ALWAYS ? atomic_load_relaxed(&machine.touch_ns)
                                                       : 1000;
}

uint64_t os_random(void) {
    enter();
    const bool refused = refuse(OS_RANDOM);
    const uint64_t value = refused ? machine.clock_ms : random_next(&machine.random_state);
    answer(!refused);
    return value;
}

_Noreturn void os_abort(void) {
    abort();
}

void os_write(int descriptor, const char *text, size_t length) {
    for (ssize_t written; length > 0 && (written = write(descriptor, text, length)) > 0;) {
        text += written;
        length -= (size_t)written;
    }
}

int os_duplicate(int descriptor) {
    return descriptor;
}

enum os_mapping os_describe_mapping(uintptr_t address, char *line, size_t capacity) {
    enter();
    const size_t index = first_above(address);
    const bool found = index < machine.range_count && machine.ranges[index].start <= address;
    line[0] = '\0';
    if (found) {
        snprintf(line, capacity, "%zx-%zx rw-p 00000000 00:00 0    [simulated]",
                 machine.ranges[index].start, machine.ranges[index].end);
    }
    leave();
    return found ? OS_MAPPING_FOUND : OS_MAPPING_NONE;
}

// ---- fake_os.h ----

void fake_os_set_page_bytes(size_t bytes) {
    if (machine.start != 0) {
        fputs("fake_os: the size of a page is set after the first call\n", stderr);
        abort();
    }
    machine.page_bytes = bytes;
}

void fake_os_pass_ms(uint64_t ms) {
    enter();
    machine.clock_ms += ms;
    leave();
}

void fake_os_touch_ns(uint64_t ns) {
    atomic_store_relaxed(&machine.touch_ns, ns);
}

void fake_os_set_processors(unsigned count) {
    machine.processors = count;
}

void fake_os_pass_cpu_ns(uint64_t ns) {
    atomic_add_relaxed(&machine.cpu_ns, ns);
}

void fake_os_fail(enum os_call kind, uint64_t nth, bool from_then_on) {
    enter();
    machine.kind = kind;
    machine.countdown = nth;
    machine.failing = false;
    machine.from_then_on = from_then_on;
    leave();
}

void fake_os_mend(void) {
    fake_os_fail(FAKE_ANY, 0, false);
}

uint64_t fake_os_struck(void) {
    enter();
    const uint64_t struck = machine.struck;
    leave();
    return struck;
}

uint64_t fake_os_refused(void) {
    return atomic_load_relaxed(&os_call_counters.failures);
}

void fake_os_watch(void (*watch)(enum os_call call, void *start, size_t bytes)) {
    machine.watch = watch;
}

void fake_os_lock(const void *start, size_t bytes) {
    machine.locked_start = (uintptr_t)start;
    machine.locked_end = (uintptr_t)start + bytes;
}

void fake_os_limit_bytes(size_t bytes) {
    enter();
    machine.bytes_max = bytes;
    leave();
}

void fake_os_limit_ranges(size_t count) {
    enter();
    machine.ranges_max = count;
    leave();
}

uint64_t fake_os_calls(enum os_call kind) {
    return atomic_load_relaxed(&os_call_counters.calls[kind]);
}

size_t fake_os_range_count(void) {
    enter();
    const size_t count = machine.range_count;
    leave();
    return count;
}

size_t fake_os_bytes(enum fake_state state) {
    size_t bytes = 0;
    enter();
    for (size_t i = 0; i < machine.range_count; i++) {
        if (machine.ranges[i].state == state) {
            bytes += machine.ranges[i].end - machine.ranges[i].start;
        }
    }
    leave();
    return bytes;
}

static const struct range *range_at(const void *address) {
    const size_t index = first_above((uintptr_t)address);
    return index < machine.range_count && machine.ranges[index].start <= (uintptr_t)address
               ? &machine.ranges[index]
               : NULL;
}

enum fake_state fake_os_state(const void *address) {
    enter();
    const struct range *range = range_at(address);
    const enum fake_state state = range == NULL ? FAKE_UNMAPPED : range->state;
    leave();
    return state;
}

uint64_t fake_os_purged_bytes(void) {
    enter();
    const uint64_t bytes = machine.purged_bytes;
    leave();
    return bytes;
}

uint64_t fake_os_split_bytes(void) {
    return machine.split_bytes;
}

enum os_huge_pages fake_os_wish(const void *address) {
    enter();
    const struct range *range = range_at(address);
    const enum os_huge_pages wish = range == NULL ? OS_HUGE_PAGES_DEFAULT : range->wish;
    leave();
    return wish;
}

void fake_os_block_behind(const void *address) {
    enter();
    const struct range *range = range_at(address);
    const uintptr_t place = range->end;
    const size_t next = first_above(place);
    if (next == machine.range_count || machine.ranges[next].start != place) {
        machine.last_mapping++;
        insert(next,
               (struct range){place, place + machine.page_bytes, machine.last_mapping,
                              machine.last_mapping, FAKE_INACCESSIBLE, OS_HUGE_PAGES_DEFAULT});
    }
    leave();
}

void fake_os_tolerate(void) {
    enter();
    machine.tolerant = true;
    leave();
}

uint64_t fake_os_breaches(void) {
    return machine.breaches;
}
