// The operating system, as the rest of hakmem sees it. The place of system calls for memory, waiting and time; besides, base/write.h
// writes, config/profile_file.c and os/file.h have files and their clock, and os/unwind.h its signals, by calls of their own.
//
// Contract: no function here allocates, takes a lock, or calls into the C library beyond a raw
// system call, clock_gettime and getauxval. A failure is a returned false or NULL; errno is never touched. The calls of enum os_call
// are counted.
// tests/unit/fake_os.c implements the same contract on a simulated machine, where each call can be
// made to fail and the clock moves by hand.
#pragma once

#include "base/atomic.h"
#include "base/base.h"

enum os_call {
    OS_MMAP,
    OS_MUNMAP,
    OS_MPROTECT,
    OS_MADVISE,
    OS_MREMAP,
    OS_MINCORE,
    OS_FUTEX,
    OS_CLOCK,
    OS_RANDOM,
    OS_CALL_COUNT,
};

struct os_call_counters {
    // Any thread adds, any thread reads. Release before each call, acquire after a call that brought
    // addresses: whoever gave them up did so before, as the kernel knows and the language does not.
    _Atomic(uint64_t) calls[OS_CALL_COUNT];
    // But for waits that end at once, mappings that have no room behind them, and advice on huge pages that the kernel does not know.
    // Relaxed: pairs with nothing.
    _Atomic(uint64_t) failures;
};

HIDDEN extern struct os_call_counters os_call_counters;

// What the kernel hands out lies below 2^ADDRESS_BITS, unless a program asks it for more by name.
#if defined(__x86_64__)
#define ADDRESS_BITS 47
#elif defined(__aarch64__)
#define ADDRESS_BITS 48
#else
#error "ADDRESS_BITS: address space of this processor not known"
#endif

// Bytes of one page of the machine: 4 KiB to 64 KiB. Constant after the first call.
size_t os_page_bytes(void);

// Fresh zeroed memory, readable and writable, aligned to `alignment` (a power of two, at least one
// page). `bytes` is a multiple of the page size. NULL when the system refuses.
void *os_map(size_t bytes, size_t alignment);

// Address space that reads as zero and cannot be written; costs neither memory nor commit charge, and is left
// out of core files. NULL as well where the address space is limited and this would be more than half of it.
void *os_reserve(size_t bytes);

// Makes a part of a reservation, or a guarded range, readable and writable.
bool os_commit(void *start, size_t bytes);

// Makes a range inaccessible: any touch is a fault.
bool os_guard(void *start, size_t bytes);

// Makes pages of this library's own file readable and writable, or readable alone.
bool os_protect(void *start, size_t bytes, bool writable);

bool os_unmap(void *start, size_t bytes);

// Whether the system has so much address space for the process at this moment, a multiple of the machine's page.
static inline bool os_would_map(size_t bytes) {
    void *asked = os_map(bytes, os_page_bytes());
    return asked != NULL && os_unmap(asked, bytes);
}

// Gives the memory of a range back; the range stays mapped and reads as zero. On false the contents
// are unknown.
bool os_purge(void *start, size_t bytes);

// Bytes of a huge page: what one page of entries, of eight bytes each, spans. 2 MiB where the machine's pages have 4 KiB, 32 MiB of 16 KiB,
// 512 MiB of 64 KiB.
size_t os_huge_page_bytes(void);

enum os_huge_pages { OS_HUGE_PAGES_DEFAULT, OS_HUGE_PAGES_ALWAYS, OS_HUGE_PAGES_NEVER };

// A wish; a refusal is not reported.
void os_advise_huge_pages(void *start, size_t bytes, enum os_huge_pages wish);

// Before a part of what huge pages may back is purged: the kernel would keep a huge page whole that is given back
// in part, though not show it. A refusal is not reported.
void os_split_huge_pages(void *start, size_t bytes);

// How much of a mapped range is in memory; 0 when the system does not tell.
size_t os_resident_bytes(void *start, size_t bytes);

// Grows or shrinks a mapping, or its last piece (see os_move()), where it lies; false when there is no room behind it.
bool os_resize(void *start, size_t old_bytes, size_t new_bytes);

// Address space without access, aligned, to move a mapping to.
void *os_reserve_aligned(size_t bytes, size_t alignment);

// Moves the pages of a mapping, without copying, to `destination`: new_bytes of the caller's, reserved with
// os_reserve_aligned() or mapped, whose contents are replaced; what is behind old_bytes reads as zero.
// Pages that came by one such call are a piece of their own: os_move() and os_resize() work within one
// piece, all else across them, as do programs that advise or lock a part of a mapping. When the system refuses, the source
// is as it was. A destination that was mapped (`writable`) is still the caller's, of whatever contents, or the process
// ends; a reservation, or a guarded part of a mapping, may be lost to another thread's mapping, which is not to be touched.
enum os_moved { OS_MOVED, OS_MOVE_REFUSED, OS_DESTINATION_LOST };
enum os_moved os_move(void *start, size_t old_bytes, void *destination, size_t new_bytes,
                      bool writable);

// Lengthens a mapping of one piece and moves it to wherever the system has room at a multiple of `alignment`: of a limited address
// space this takes what is new and two alignments, where os_move() wants a place for the whole beside it. May copy. What is
// behind old_bytes reads as zero. Returns the new start; NULL, and the mapping is as it was, when the system refuses. Less than two
// alignments beside it may stay mapped, and empty, where it refuses to cut them off.
void *os_move_anywhere(void *start, size_t old_bytes, size_t new_bytes, size_t alignment);

// Sleeps while *word == expected (or wakes early); wakes at most one sleeper.
void os_futex_wait(_Atomic(uint32_t) *word, uint32_t expected);
// The same, for so long at most.
void os_futex_wait_ms(_Atomic(uint32_t) *word, uint32_t expected, uint32_t most_ms);
void os_futex_wake_one(_Atomic(uint32_t) *word);

// The kernel's number of the calling thread.
uint32_t os_thread_id(void);

// Whether the calling thread has run its last destructor, as far as the C library shows it: glibc, from 2.35 on, then blocks the signal
// that it cancels threads with, which it lets no program block. A system call.
#define OS_SIGNAL_OF_CANCEL 32
bool os_thread_has_ended(void);

// Whether a process has no thread of this number (any more). A system call.
bool os_thread_is_gone(uint64_t process_id, uint32_t thread_id);

// Processors that the first thread of the process may run on, 1 where the system does not tell: a system call.
unsigned os_processors(void);

// Milliseconds of a monotonic clock, in steps of a few.
uint64_t os_clock_ms(void);

// The same as a system call, for who holds a lock: the C library's clock may be another library's, which allocates.
// A program that fakes the time sees other figures here: they compare with each other alone.
uint64_t os_clock_ms_locked(void);

// Two threads' looks at the clock may be so far apart.
#define OS_CLOCKS_APART_MS 1000

// Whether the clock has gone back since a time was noted, as in the child of a fork whose namespace has a time of its own: what was
// noted says nothing then.
static inline bool os_clock_went_back(uint64_t noted_ms, uint64_t now_ms) {
    return noted_ms > now_ms && noted_ms - now_ms > OS_CLOCKS_APART_MS;
}

// Whether more than `delay_ms` have passed since a time was noted, or nobody can tell.
static inline bool os_is_long_ago(uint64_t noted_ms, uint64_t delay_ms, uint64_t now_ms) {
    return now_ms > noted_ms + delay_ms || os_clock_went_back(noted_ms, now_ms);
}

// The processor's own counter: no system call, unknown unit of 0.1 to 10 ns, for pacing and for
// research timing only.
static inline uint64_t os_ticks(void);

// Nanoseconds for which the calling thread has had a processor: a system call.
uint64_t os_thread_cpu_ns(void);
// The same of all threads of the process together.
uint64_t os_process_cpu_ns(void);

// Touches a page that reads as zero, and that nobody else touches: the system brings it, and it still reads as zero. Returns how long
// the thread had a processor for that, in nanoseconds: two system calls.
uint64_t os_touch_ns(void *start);

// Tells threads that exist apart without a thread-local variable or a system call.
static inline uintptr_t os_thread_pointer(void);

// About ten milliseconds in os_ticks() units; pacing needs no more precision than a factor of ten.
#define OS_TICKS_PACE (UINT64_C(1) << 24)

// 64 unpredictable bits when the kernel has them, else bits from the clock and addresses.
uint64_t os_random(void);

// Ends the process with SIGABRT, also while signals are blocked or a handler is installed.
_Noreturn void os_abort(void);

// Writes what it can to a file descriptor; there is nobody to report a failure to.
void os_write(int descriptor, const char *text, size_t length);

// A second descriptor for the same file, at 100 or above and closed on exec; the first when there
// is none to be had.
int os_duplicate(int descriptor);

// What the kernel says of an address: the first line of /proc/self/maps that contains it goes to
// `line` (NUL-terminated, without its newline, cut at `capacity`).
enum os_mapping {
    OS_MAPPING_FOUND,
    OS_MAPPING_NONE,     // no mapping contains it
    OS_MAPPING_UNKNOWN,  // the file cannot be read
};
enum os_mapping os_describe_mapping(uintptr_t address, char *line, size_t capacity);

#if defined(__x86_64__)
static inline uint64_t os_ticks(void) {
    return __builtin_ia32_rdtsc();
}

static inline uintptr_t os_thread_pointer(void) {
    uintptr_t pointer;
    __asm__("mov %%fs:0, %0" : "=r"(pointer));
    return pointer;
}
#elif defined(__aarch64__)
// The counter runs at some tens of MHz, or, from Armv8.6 on, at 1 GHz.
static inline uint64_t os_ticks(void) {
    uint64_t ticks;
    uint64_t frequency_hz;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    __asm__("mrs %0, cntfrq_el0" : "=r"(frequency_hz));
    return ticks << (frequency_hz >= UINT64_C(500000000) ? 1 : 6);
}

static inline uintptr_t os_thread_pointer(void) {
    uintptr_t pointer;
    __asm__("mrs %0, tpidr_el0" : "=r"(pointer));
    return pointer;
}
#else
#error "os_ticks: no counter known for this processor"
#endif
