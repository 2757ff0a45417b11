// os.h on Linux, by raw system calls (base/system_call.h).
// The kernel's own headers are not used: musl-gcc does not find them.
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/system_call.h"
#include "base/write.h"
#include "os/events.h"
#include "os/lock.h"
#include "os/os.h"

// linux/futex.h
#define FUTEX_WAIT_PRIVATE (0 | 128)
#define FUTEX_WAKE_PRIVATE (1 | 128)

#define PAGE_BYTES_MIN (4 * KIB)

struct os_call_counters os_call_counters;

static void note_failure(enum os_call call, long result) {
    atomic_add_relaxed(&os_call_counters.failures, 1);
    event_record(EVENT_os_failure, call, (uint64_t)-result);
}

static long counted_call(enum os_call call, long number, long a, long b, long c, long d, long e,
                         long f) {
    atomic_add_release(&os_call_counters.calls[call], 1);
    const long result = system_call(number, a, b, c, d, e, f);
    if (unlikely(system_call_failed(result)) && call != OS_FUTEX) {
        note_failure(call, result);
    }
    return result;
}

// After a call that brought addresses: see os_call_counters.
static void follow_former_users(void) {
    (void)atomic_load_acquire(&os_call_counters.calls[OS_MUNMAP]);
    (void)atomic_load_acquire(&os_call_counters.calls[OS_MREMAP]);
}

static void *map_anonymous(void *hint, size_t bytes, int protection, int extra_flags) {
    const long result = counted_call(OS_MMAP, __NR_mmap, (long)hint, (long)bytes, protection,
                                     MAP_PRIVATE | MAP_ANONYMOUS | extra_flags, -1, 0);
    follow_former_users();
    return system_call_failed(result) ? NULL : (void *)result;
}

size_t os_page_bytes(void) {
    // Relaxed, and set to the same value by whoever comes first: pairs with nothing.
    static _Atomic(size_t) cached;
    size_t bytes = atomic_load_relaxed(&cached);
    if (unlikely(bytes == 0)) {
        bytes = getauxval(AT_PAGESZ);
        if (bytes == 0) {
            bytes = 4096;
        }
        atomic_store_relaxed(&cached, bytes);
    }
    return bytes;
}

size_t os_huge_page_bytes(void) {
    return os_page_bytes() / sizeof(uint64_t) * os_page_bytes();
}

// Cuts the aligned part out of an oversized mapping. A trim that the kernel refuses (no mapping
// left to split into) fails the whole, and nothing stays behind; where it takes nothing back at all,
// the rest stays mapped, untouched, beside the part that is used.
static void *map_aligned(size_t bytes, size_t alignment, int protection, int flags) {
    if (bytes > SIZE_MAX - alignment) {
        return NULL;
    }
    const size_t wide_bytes = bytes + alignment - os_page_bytes();
    char *wide = map_anonymous(NULL, wide_bytes, protection, flags);
    if (wide == NULL) {
        return NULL;
    }
    char *start = (char *)align_up((uintptr_t)wide, alignment);
    const size_t head_bytes = (size_t)(start - wide);
    const size_t tail_bytes = wide_bytes - head_bytes - bytes;
    if (head_bytes != 0 && !os_unmap(wide, head_bytes) && os_unmap(wide, wide_bytes)) {
        return NULL;
    }
    if (tail_bytes != 0 && !os_unmap(start + bytes, tail_bytes) &&
        os_unmap(start, bytes + tail_bytes)) {
        return NULL;
    }
    return start;
}

static bool is_aligned(const char *start, size_t alignment) {
    return ((uintptr_t)start & (alignment - 1)) == 0;
}

void *os_map(size_t bytes, size_t alignment) {
    // Mappings usually grow downward without gaps, so after one aligned mapping of a size that is
    // a multiple of the alignment the next fits below it at the first try.
    char *start = map_anonymous(NULL, bytes, PROT_READ | PROT_WRITE, 0);
    if (start == NULL || is_aligned(start, alignment)) {
        return start;
    }
    bool gone = os_unmap(start, bytes);
    if (gone) {
        // The multiple below, if the kernel takes the hint: two calls less than cutting it out.
        void *hint = (void *)align_down((uintptr_t)start, alignment);
        start = map_anonymous(hint, bytes, PROT_READ | PROT_WRITE, 0);
        if (start == NULL || is_aligned(start, alignment)) {
            return start;
        }
        gone = os_unmap(start, bytes);
    }
    char *aligned = map_aligned(bytes, alignment, PROT_READ | PROT_WRITE, 0);
    if (aligned == NULL) {
        // Only what is writable counts against the limits of data and of commit: what is cut off costs nothing so.
        aligned = map_aligned(bytes, alignment, PROT_NONE, 0);
        if (aligned != NULL && !os_commit(aligned, bytes)) {
            os_unmap(aligned, bytes);
            aligned = NULL;
        }
    }
    if (unlikely(!gone)) {
        os_unmap(start, bytes);  // refused a moment ago: perhaps not for good
    }
    return aligned;
}

// Of a limited address space a reservation takes half at most: the program wants the rest.
static bool may_reserve(size_t bytes) {
    uint64_t limits[2] = {0, 0};  // soft and hard; all ones: none
    const long error = system_call(__NR_prlimit64, 0, RLIMIT_AS, 0, (long)limits, 0, 0);
    return system_call_failed(error) || limits[0] == UINT64_MAX || bytes <= limits[0] / 2;
}

// Valgrind answers to a sequence of instructions that does nothing on a processor.
static bool is_under_valgrind(void) {
    const uint64_t request[6] = {0x1001};  // whether it runs the program
#if defined(__x86_64__)
    uint64_t answer = 0;
    __asm__ volatile("rolq $3, %%rdi; rolq $13, %%rdi; rolq $61, %%rdi; rolq $51, %%rdi\n\t"
                     "xchgq %%rbx, %%rbx"
                     : "+d"(answer)
                     : "a"(request)
                     : "cc", "memory");
#elif defined(__aarch64__)
    register uint64_t answer __asm__("x3") = 0;
    register const uint64_t *x4 __asm__("x4") = request;
    __asm__ volatile("ror x12, x12, #3; ror x12, x12, #13; ror x12, x12, #51; ror x12, x12, #61\n\t"
                     "orr x10, x10, x10"
                     : "+r"(answer)
                     : "r"(x4)
                     : "cc", "memory");
#endif
    return answer != 0;
}

void *os_reserve(size_t bytes) {
    if (!may_reserve(bytes)) {
        return NULL;
    }
    // Its memcheck looks at every byte that is made accessible later: half a minute and 4 GiB.
    const int protection = is_under_valgrind() ? PROT_READ : PROT_NONE;
    void *start = map_anonymous(NULL, bytes, protection, MAP_NORESERVE);
    if (start == NULL) {
        return NULL;
    }
    // Made readable behind that: mlockall(MCL_FUTURE) would fill what is readable when it is mapped, with entries of the zero page, for
    // seconds. What becomes writable later it fills all the same.
    if (protection == PROT_NONE && !os_protect(start, bytes, false)) {
        os_unmap(start, bytes);
        return NULL;
    }
    // mlockall(MCL_CURRENT) does so later: with the huge zero page it takes a hundredth of the time. Many systems have none: no failure.
    system_call(__NR_madvise, (long)start, (long)bytes, MADV_HUGEPAGE, 0, 0, 0);
    // Or gdb's gcore writes gigabytes of nothing. Without it all else works.
    counted_call(OS_MADVISE, __NR_madvise, (long)start, (long)bytes, MADV_DONTDUMP, 0, 0, 0);
    return start;
}

bool os_commit(void *start, size_t bytes) {
    return !system_call_failed(counted_call(OS_MPROTECT, __NR_mprotect, (long)start, (long)bytes,
                                            PROT_READ | PROT_WRITE, 0, 0, 0));
}

bool os_guard(void *start, size_t bytes) {
    return !system_call_failed(
        counted_call(OS_MPROTECT, __NR_mprotect, (long)start, (long)bytes, PROT_NONE, 0, 0, 0));
}

bool os_protect(void *start, size_t bytes, bool writable) {
    return !system_call_failed(counted_call(OS_MPROTECT, __NR_mprotect, (long)start, (long)bytes,
                                            PROT_READ | (writable ? PROT_WRITE : 0), 0, 0, 0));
}

bool os_unmap(void *start, size_t bytes) {
    return !system_call_failed(
        counted_call(OS_MUNMAP, __NR_munmap, (long)start, (long)bytes, 0, 0, 0, 0));
}

bool os_purge(void *start, size_t bytes) {
    return !system_call_failed(
        counted_call(OS_MADVISE, __NR_madvise, (long)start, (long)bytes, MADV_DONTNEED, 0, 0, 0));
}

// Of a kernel that does not know the advice, as those for real time know no huge pages, and Linux before 4.5 no MADV_FREE: no failure.
static void advise(uintptr_t start, size_t bytes, int advice) {
    atomic_add_release(&os_call_counters.calls[OS_MADVISE], 1);
    const long result = system_call(__NR_madvise, (long)start, (long)bytes, advice, 0, 0, 0);
    if (system_call_failed(result) && result != -EINVAL) {
        note_failure(OS_MADVISE, result);
    }
}

void os_advise_huge_pages(void *start, size_t bytes, enum os_huge_pages wish) {
    if (wish != OS_HUGE_PAGES_DEFAULT) {
        advise((uintptr_t)start, bytes,
               wish == OS_HUGE_PAGES_ALWAYS ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    }
}

// The part of a huge page that lies in the range, from `start` on: MADV_FREE of any page of it splits the huge page.
static void split_first(uintptr_t start, size_t bytes) {
    const size_t huge_bytes = os_huge_page_bytes();
    if (start % huge_bytes != 0 || bytes < huge_bytes) {
        advise(start, os_page_bytes(), MADV_FREE);
    }
}

void os_split_huge_pages(void *start, size_t bytes) {
    const uintptr_t first = (uintptr_t)start;
    const uintptr_t last = align_down(first + bytes - 1, os_huge_page_bytes());
    split_first(first, bytes);
    if (last > first) {
        split_first(last, first + bytes - last);
    }
}

size_t os_resident_bytes(void *start, size_t bytes) {
    const size_t page_bytes = os_page_bytes();
    unsigned char in_memory[1024];
    size_t pages = 0;
    for (size_t done = 0; done < bytes;) {
        // An emulator whose pages are larger than those below it is told of these.
        const size_t part = least_u64(bytes - done, sizeof in_memory * PAGE_BYTES_MIN);
        if (system_call_failed(counted_call(OS_MINCORE, __NR_mincore, (long)start + (long)done,
                                            (long)part, (long)in_memory, 0, 0, 0))) {
            return 0;
        }
        for (size_t i = 0; i < part / page_bytes; i++) {
            pages += in_memory[i] & 1;
        }
        done += part;
    }
    return pages * page_bytes;
}

bool os_resize(void *start, size_t old_bytes, size_t new_bytes) {
    atomic_add_release(&os_call_counters.calls[OS_MREMAP], 1);
    const long result =
        system_call(__NR_mremap, (long)start, (long)old_bytes, (long)new_bytes, 0, 0, 0);
    follow_former_users();
    // That there is no room behind a mapping is no failure: whoever wants it moves.
    if (system_call_failed(result) && result != -ENOMEM) {
        note_failure(OS_MREMAP, result);
    }
    return !system_call_failed(result);
}

void *os_reserve_aligned(size_t bytes, size_t alignment) {
    return map_aligned(bytes, alignment, PROT_NONE, MAP_NORESERVE);
}

// Asks the kernel to lengthen a range by a page where it lies: -EFAULT when the range goes across two pieces or is not
// there; 0, and it is as before, or -ENOMEM when it is in one piece; -EAGAIN when it is and is locked in memory. No more
// than a page is asked for: Linux up to 5.14 counts what is asked for as committed, for all processes, until it refuses.
static long ask_for_a_page(void *start, size_t bytes) {
    const size_t page_bytes = os_page_bytes();
    atomic_add_release(&os_call_counters.calls[OS_MREMAP], 1);
    const long result =
        system_call(__NR_mremap, (long)start, (long)bytes, (long)(bytes + page_bytes), 0, 0, 0);
    if (system_call_failed(result)) {
        return result;
    }
    os_unmap((char *)start + bytes, page_bytes);
    return 0;
}

// Linux up to 6.16 unmaps the destination of a move before it looks at anything else, later versions before they
// count what the process may have: after a move that was refused the range may be a hole, where another thread's
// mapping may land. It is taken back without access, which no limit counts. False when something is there.
static bool fill_hole(void *start, size_t bytes) {
    void *found = map_anonymous(start, bytes, PROT_NONE, MAP_NORESERVE | MAP_FIXED_NOREPLACE);
    if (found != NULL && found != start) {
        os_unmap(found, bytes);  // before Linux 4.17, which does not know the flag
    }
    return found == start;
}

// Of a mapped word: whether the system may read it for the program. An impossible wish, so that nothing comes of it.
static bool is_readable(void *word) {
    return system_call(__NR_rt_sigprocmask, -1, (long)word, 0, sizeof(uint64_t), 0, 0) != -EFAULT;
}

// Whether a range without access is mapped there in one piece: a reservation that never went. Another thread's mapping is
// hardly one so large, within the moment for which there is a hole. No look at /proc: of a process at its limit of mappings
// that has 65,000 lines.
static bool is_reservation(void *start, size_t bytes) {
    return ask_for_a_page(start, bytes) != -EFAULT && !is_readable(start);
}

// After a move that was refused: what has become of its destination.
static enum os_moved take_back(void *start, size_t bytes, bool writable) {
    const bool was_hole = fill_hole(start, bytes);
    if (!writable) {
        const bool is_ours = was_hole || is_reservation(start, bytes);
        return is_ours ? OS_MOVE_REFUSED : OS_DESTINATION_LOST;
    }
    // A part of a block: nothing else can take its place.
    const bool is_back =
        was_hole ? os_commit(start, bytes) : ask_for_a_page(start, bytes) != -EFAULT;
    if (unlikely(!is_back)) {
        static const char line[] =
            "hakmem: the system took memory away that it should have moved\n";
        os_write(2, line, sizeof line - 1);
        os_abort();
    }
    return OS_MOVE_REFUSED;
}

enum os_moved os_move(void *start, size_t old_bytes, void *destination, size_t new_bytes,
                      bool writable) {
    const long asked = ask_for_a_page(start, old_bytes);
    if (asked != 0 && asked != -ENOMEM) {
        return OS_MOVE_REFUSED;
    }
    // MREMAP_FIXED replaces what is at the destination: the caller's own reservation.
    if (system_call_failed(counted_call(OS_MREMAP, __NR_mremap, (long)start, (long)old_bytes,
                                        (long)new_bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
                                        (long)destination, 0))) {
        return take_back(destination, new_bytes, writable);
    }
    return OS_MOVED;
}

static char *lengthen(void *start, size_t old_bytes, size_t new_bytes) {
    const long result = counted_call(OS_MREMAP, __NR_mremap, (long)start, (long)old_bytes,
                                     (long)new_bytes, MREMAP_MAYMOVE, 0, 0);
    follow_former_users();
    return system_call_failed(result) ? NULL : (char *)result;
}

// Where the system has no mapping left to divide one into, addresses alone stay, not what is there.
static void trim(char *start, size_t bytes) {
    if (!os_unmap(start, bytes)) {
        os_purge(start, bytes);
    }
}

// The system alone knows where there is room, and does not ask for a multiple: so much more is taken that one lies within.
void *os_move_anywhere(void *start, size_t old_bytes, size_t new_bytes, size_t alignment) {
    size_t wide_bytes = new_bytes + alignment - os_page_bytes();
    char *wide = lengthen(start, old_bytes, wide_bytes);
    if (wide == NULL) {
        return NULL;
    }
    if (!is_aligned(wide, alignment)) {
        // Mappings usually grow downward: so long that it starts at a multiple where it comes to lie directly below.
        const size_t odd_bytes = ((uintptr_t)wide - wide_bytes) & (alignment - 1);
        const size_t more_bytes = odd_bytes != 0 ? odd_bytes : alignment;
        char *below = lengthen(wide, wide_bytes, wide_bytes + more_bytes);
        wide = below != NULL ? below : wide;
        wide_bytes += below != NULL ? more_bytes : 0;
    }
    char *aligned = (char *)align_up((uintptr_t)wide, alignment);
    if (aligned != wide) {
        __builtin_memmove(aligned, wide, old_bytes);
        trim(wide, (size_t)(aligned - wide));
    }
    if (aligned + new_bytes != wide + wide_bytes) {
        trim(aligned + new_bytes, (size_t)(wide + wide_bytes - (aligned + new_bytes)));
    }
    return aligned;
}

void os_futex_wait(_Atomic(uint32_t) *word, uint32_t expected) {
    counted_call(OS_FUTEX, __NR_futex, (long)word, FUTEX_WAIT_PRIVATE, expected, 0, 0, 0);
}

void os_futex_wait_ms(_Atomic(uint32_t) *word, uint32_t expected, uint32_t most_ms) {
    const long most[2] = {most_ms / 1000, most_ms % 1000 * 1000000};  // a struct timespec
    counted_call(OS_FUTEX, __NR_futex, (long)word, FUTEX_WAIT_PRIVATE, expected, (long)most, 0, 0);
}

void os_futex_wake_one(_Atomic(uint32_t) *word) {
    counted_call(OS_FUTEX, __NR_futex, (long)word, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
}

uint32_t os_thread_id(void) {
    return (uint32_t)system_call(__NR_gettid, 0, 0, 0, 0, 0, 0);
}

bool os_thread_has_ended(void) {
    uint64_t blocked = 0;
    system_call(__NR_rt_sigprocmask, SIG_BLOCK, 0, (long)&blocked, sizeof blocked, 0, 0);
    return (blocked & bit(OS_SIGNAL_OF_CANCEL - 1)) != 0;
}

bool os_thread_is_gone(uint64_t process_id, uint32_t thread_id) {
    return system_call(__NR_tgkill, (long)process_id, thread_id, 0, 0, 0, 0) == -ESRCH;
}

static void count_clock(void) {
    atomic_add_relaxed(&os_call_counters.calls[OS_CLOCK], 1);
}

static uint64_t milliseconds(const struct timespec *time) {
    count_clock();
    return (uint64_t)time->tv_sec * 1000 + (uint64_t)time->tv_nsec / 1000000;
}

uint64_t os_clock_ms(void) {
    struct timespec now = {0, 0};
    // Through the C library: it reads the kernel's page where there is one, without a system call.
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return milliseconds(&now);
}

uint64_t os_clock_ms_locked(void) {
    struct timespec now = {0, 0};
    system_call(__NR_clock_gettime, CLOCK_MONOTONIC_COARSE, (long)&now, 0, 0, 0, 0);
    return milliseconds(&now);
}

static uint64_t cpu_ns(clockid_t whose) {
    struct timespec used = {0, 0};
    count_clock();
    system_call(__NR_clock_gettime, whose, (long)&used, 0, 0, 0, 0);
    return (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec;
}

uint64_t os_thread_cpu_ns(void) {
    return cpu_ns(CLOCK_THREAD_CPUTIME_ID);
}

uint64_t os_process_cpu_ns(void) {
    return cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
}

uint64_t os_touch_ns(void *start) {
    const uint64_t before_ns = os_thread_cpu_ns();
    *(volatile char *)start = 0;
    return os_thread_cpu_ns() - before_ns;
}

unsigned os_processors(void) {
    uint64_t allowed[128] = {0};  // a bit each: of more than the kernel can count
    const long bytes =
        system_call(__NR_sched_getaffinity, system_call(__NR_getpid, 0, 0, 0, 0, 0, 0),
                    sizeof allowed, (long)allowed, 0, 0, 0);
    unsigned count = 0;
    for (long i = 0; i < bytes / (long)sizeof *allowed; i++) {
        count += bit_count(allowed[i]);
    }
    return count == 0 ? 1 : count;
}

uint64_t os_random(void) {
    uint64_t value = 0;
    const long got = counted_call(OS_RANDOM, __NR_getrandom, (long)&value, sizeof value,
                                  1 /* GRND_NONBLOCK */, 0, 0, 0);
    if (got != (long)sizeof value) {
        value ^= os_ticks() * UINT64_C(0x9E3779B97F4A7C15) ^ (uint64_t)(uintptr_t)&value;
    }
    return value;
}

void os_write(int descriptor, const char *text, size_t length) {
    write_quietly(descriptor, text, length);
}

int os_duplicate(int descriptor) {
    const long copy = system_call(__NR_fcntl, descriptor, F_DUPFD_CLOEXEC, 100, 0, 0, 0);
    return system_call_failed(copy) ? descriptor : (int)copy;
}

_Noreturn void os_abort(void) {
    // The default action, unblocked, in this thread: what abort() does, without its lock, which a
    // handler that itself ends up here might hold.
    struct {
        void (*handler)(int);
        unsigned long flags;
        void (*restorer)(void);
        uint64_t mask;
    } default_action = {SIG_DFL, 0, NULL, 0};
    const uint64_t abort_mask = UINT64_C(1) << (SIGABRT - 1);
    const long process = system_call(__NR_getpid, 0, 0, 0, 0, 0, 0);
    const long thread = system_call(__NR_gettid, 0, 0, 0, 0, 0, 0);
    // The first signal reaches a handler the program installed (a crash reporter), which may
    // allocate; when that returns, or ends up here, the second cannot be caught.
    const bool first = lock_abort_begin();
    system_call(__NR_rt_sigprocmask, SIG_UNBLOCK, (long)&abort_mask, 0, sizeof abort_mask, 0, 0);
    if (first) {
        system_call(__NR_tgkill, process, thread, SIGABRT, 0, 0, 0);
    }
    system_call(__NR_rt_sigaction, SIGABRT, (long)&default_action, 0, sizeof abort_mask, 0, 0);
    system_call(__NR_tgkill, process, thread, SIGABRT, 0, 0, 0);
    system_call(__NR_exit_group, 127, 0, 0, 0, 0, 0);
    __builtin_unreachable();
}

// Reads one "start-end" line head; returns whether it contains `address`.
static bool line_contains(const char *line, uintptr_t address) {
    uintptr_t bound[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        for (;; line++) {
            const char c = *line;
            if (c >= '0' && c <= '9') {
                bound[i] = bound[i] * 16 + (uintptr_t)(c - '0');
            } else if (c >= 'a' && c <= 'f') {
                bound[i] = bound[i] * 16 + (uintptr_t)(c - 'a' + 10);
            } else {
                break;
            }
        }
        line += *line != '\0';  // the dash, then the space; a line that was cut may have neither
    }
    return address >= bound[0] && address < bound[1];
}

enum os_mapping os_describe_mapping(uintptr_t address, char *line, size_t capacity) {
    const long file =
        system_call(__NR_openat, AT_FDCWD, (long)"/proc/self/maps", O_RDONLY | O_CLOEXEC, 0, 0, 0);
    if (system_call_failed(file)) {
        return OS_MAPPING_UNKNOWN;
    }
    char buffer[512];
    size_t length = 0;
    bool found = false;
    for (long got = 1; got > 0 && !found;) {
        got = system_call(__NR_read, file, (long)buffer, sizeof buffer, 0, 0, 0);
        for (long i = 0; i < got && !found; i++) {
            if (buffer[i] != '\n') {
                if (length + 1 < capacity) {
                    line[length++] = buffer[i];
                }
                continue;
            }
            line[length] = '\0';
            found = line_contains(line, address);
            length = 0;
        }
    }
    system_call(__NR_close, file, 0, 0, 0, 0, 0);
    return found ? OS_MAPPING_FOUND : OS_MAPPING_NONE;
}
