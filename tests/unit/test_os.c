// The contract of os.h. Built twice: with Linux behind it, and with the simulated machine, which so
// proves to behave as the real one does.
#include "isolate.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bits.h"
#include "os/os.h"

static bool is_zero(const char *start, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        if (start[i] != 0) {
            return false;
        }
    }
    return true;
}

static uint64_t calls(enum os_call kind) {
    return atomic_load_relaxed(&os_call_counters.calls[kind]);
}

// Whether reading, or writing, a byte ends the process.
struct touch {
    char *address;
    bool write;
};

static int do_touch(const void *context) {
    const struct touch *touch = context;
    if (touch->write) {
        *(volatile char *)touch->address = 1;
    } else {
        (void)*(volatile char *)touch->address;
    }
    return 0;
}

static bool faults(char *address, bool write) {
    struct touch touch = {address, write};
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would report it
        signal(SIGBUS, SIG_DFL);
        _exit(do_touch(&touch));
    }
    int status;
    assert_true(waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status);
}

static void test_page_size(void **state) {
    (void)state;
    assert_true(is_power_of_two(os_page_bytes()));
    assert_in_range(os_page_bytes(), 4096, 65536);
    assert_int_equal(os_page_bytes(), os_page_bytes());
}

static void test_map_is_zero_aligned_and_writable(void **state) {
    (void)state;
    for (size_t alignment = os_page_bytes(); alignment <= 64 * MIB; alignment *= 4) {
        const size_t bytes = 5 * os_page_bytes();
        char *first = os_map(bytes, alignment);
        char *second = os_map(bytes, alignment);
        assert_non_null(first);
        assert_non_null(second);
        assert_int_equal((uintptr_t)first % alignment, 0);
        assert_int_equal((uintptr_t)second % alignment, 0);
        assert_true(is_zero(first, bytes) && is_zero(second, bytes));
        memset(first, 0x11, bytes);
        assert_true(is_zero(second, bytes));
        assert_true(os_unmap(first, bytes));
        assert_true(os_unmap(second, bytes));
    }
}

static void test_impossible_maps_are_refused(void **state) {
    (void)state;
    errno = 77;
    const uint64_t failures = atomic_load_relaxed(&os_call_counters.failures);
    const size_t most = SIZE_MAX & ~(os_page_bytes() - 1);
    assert_null(os_map((size_t)1 << 60, os_page_bytes()));
    assert_null(os_map((size_t)1 << 60, 4 * MIB));
    assert_null(os_map(most, os_page_bytes()));
    assert_null(os_map(most, 4 * MIB));
    assert_null(os_reserve((size_t)1 << 60));
    assert_null(os_reserve_aligned((size_t)1 << 60, 64 * KIB));
    assert_true(atomic_load_relaxed(&os_call_counters.failures) > failures);
    assert_int_equal(errno, 77);
}

static void test_reservation_reads_as_zero_until_committed(void **state) {
    (void)state;
    const size_t page = os_page_bytes();
    char *start = os_reserve(16 * page);
    assert_non_null(start);
    assert_true(is_zero(start, 16 * page));
    assert_true(faults(start, true));
    assert_true(os_commit(start + 4 * page, 2 * page));
    memset(start + 4 * page, 1, 2 * page);
    assert_true(is_zero(start, 4 * page));
    assert_true(faults(start + 4 * page - 1, true));
    assert_true(faults(start + 6 * page, true));
    assert_true(os_unmap(start, 16 * page));
}

static void test_guard_and_back(void **state) {
    (void)state;
    const size_t page = os_page_bytes();
    char *start = os_map(3 * page, page);
    assert_non_null(start);
    memset(start, 1, 3 * page);
    assert_true(os_guard(start + page, page));
    assert_true(faults(start + page, false));
    assert_true(faults(start + 2 * page - 1, true));
    assert_false(faults(start + page - 1, true));
    assert_false(faults(start + 2 * page, true));
    assert_true(os_commit(start + page, page));
    assert_false(faults(start + page, true));
    assert_true(os_unmap(start, 3 * page));
    assert_true(faults(start, false));
}

static void test_purged_memory_reads_as_zero(void **state) {
    (void)state;
    const size_t page = os_page_bytes();
    char *start = os_map(8 * page, page);
    assert_non_null(start);
    memset(start, 1, 8 * page);
    assert_true(os_purge(start + page, 3 * page));
    assert_int_equal(start[page - 1], 1);
    assert_true(is_zero(start + page, 3 * page));
    assert_int_equal(start[4 * page], 1);
    start[page] = 2;
    assert_true(os_unmap(start, 8 * page));
}

static void test_resize_in_place(void **state) {
    (void)state;
    const size_t page = os_page_bytes();
    // Room behind a mapping, certainly: the tail of it that was unmapped.
    char *start = os_map(16 * page, page);
    assert_non_null(start);
    memset(start, 1, 16 * page);
    assert_true(os_resize(start, 16 * page, 4 * page));
    assert_true(faults(start + 4 * page, false));
    assert_true(os_resize(start, 4 * page, 12 * page));
    assert_int_equal(start[4 * page - 1], 1);
    assert_true(is_zero(start + 4 * page, 8 * page));
    memset(start, 2, 12 * page);
    // No room where another mapping is.
    assert_true(os_guard(start + 11 * page, page));
    const uint64_t failures = atomic_load_relaxed(&os_call_counters.failures);
    assert_false(os_resize(start, 11 * page, 12 * page));
    // That is no failure of the system.
    assert_int_equal(atomic_load_relaxed(&os_call_counters.failures), failures);
    assert_true(os_unmap(start, 12 * page));
}

static void test_move(void **state) {
    (void)state;
    const size_t page = os_page_bytes();
    const size_t bytes = 16 * page;
    char *start = os_map(4 * page, page);
    assert_non_null(start);
    memset(start, 3, 4 * page);
    char *destination = os_reserve_aligned(bytes, 64 * KIB);
    assert_non_null(destination);
    assert_int_equal((uintptr_t)destination % (64 * KIB), 0);
    assert_true(faults(destination, false));
    assert_int_equal(os_move(start, 4 * page, destination, bytes, false), OS_MOVED);
    for (size_t i = 0; i < 4 * page; i++) {
        assert_int_equal(destination[i], 3);
    }
    assert_true(is_zero(destination + 4 * page, bytes - 4 * page));
    memset(destination, 4, bytes);
    assert_true(faults(start, false));
    assert_true(os_unmap(destination, bytes));
}

static void test_every_call_is_counted(void **state) {
    (void)state;
    const size_t page = os_page_bytes();
    uint64_t before[OS_CALL_COUNT];
    for (size_t i = 0; i < OS_CALL_COUNT; i++) {
        before[i] = calls((enum os_call)i);
    }
    char *start = os_map(2 * page, page);
    os_guard(start, page);
    os_commit(start, page);
    os_purge(start, page);
    os_resize(start, 2 * page, page);
    os_clock_ms();
    os_random();
    _Atomic(uint32_t) word = 1;  // relaxed: nobody else looks
    os_futex_wake_one(&word);
    os_futex_wait(&word, 2);
    os_futex_wait_ms(&word, 1, 1);
    os_unmap(start, page);
    static const uint64_t expected[OS_CALL_COUNT] = {
        [OS_MMAP] = 1,   [OS_MUNMAP] = 1, [OS_MPROTECT] = 2, [OS_MADVISE] = 1,
        [OS_MREMAP] = 1, [OS_FUTEX] = 3,  [OS_CLOCK] = 1,    [OS_RANDOM] = 1,
    };
    for (size_t i = 0; i < OS_CALL_COUNT; i++) {
        assert_int_equal(calls((enum os_call)i) - before[i], expected[i]);
    }
}

static void test_wishes_about_huge_pages(void **state) {
    (void)state;
    char *start = os_map(4 * MIB, 4 * MIB);
    assert_non_null(start);
    const uint64_t before = calls(OS_MADVISE);
    os_advise_huge_pages(start, 4 * MIB, OS_HUGE_PAGES_DEFAULT);
    assert_int_equal(calls(OS_MADVISE), before);
    os_advise_huge_pages(start, 4 * MIB, OS_HUGE_PAGES_ALWAYS);
    os_advise_huge_pages(start, 4 * MIB, OS_HUGE_PAGES_NEVER);
    assert_int_equal(calls(OS_MADVISE), before + 2);
    assert_true(is_zero(start, 4 * MIB));
    assert_true(os_unmap(start, 4 * MIB));
}

static void test_clock_never_goes_back(void **state) {
    (void)state;
    uint64_t last = os_clock_ms();
    assert_true(last > 0);
    for (int i = 0; i < 100; i++) {
        const uint64_t now = os_clock_ms();
        assert_true(now >= last);
        last = os_clock_ms_locked();
        assert_true(last >= now);
    }
}

static void test_random_differs(void **state) {
    (void)state;
    const uint64_t first = os_random();
    const uint64_t second = os_random();
    assert_true(first != second);
}

static void test_write_and_duplicate(void **state) {
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const int copy = os_duplicate(ends[1]);
    os_write(copy, "hello", 5);
    os_write(-1, "nobody", 6);
    char text[8] = "";
    assert_int_equal(read(ends[0], text, sizeof text), 5);
    assert_memory_equal(text, "hello", 5);
}

static void test_describes_a_mapping(void **state) {
    (void)state;
    char *start = os_map(64 * KIB, 64 * KIB);
    char line[256] = "";
    assert_int_equal(os_describe_mapping((uintptr_t)start + 100, line, sizeof line),
                     OS_MAPPING_FOUND);
    assert_non_null(strstr(line, " rw-p "));
    assert_true(os_unmap(start, 64 * KIB));
    assert_int_equal(os_describe_mapping(16, line, sizeof line), OS_MAPPING_NONE);
    char cut[40];  // the addresses fit, no more need do
    start = os_map(64 * KIB, 64 * KIB);
    assert_int_equal(os_describe_mapping((uintptr_t)start, cut, sizeof cut), OS_MAPPING_FOUND);
    assert_int_equal(strlen(cut), sizeof cut - 1);
    char tiny[8];
    os_describe_mapping((uintptr_t)start, tiny, sizeof tiny);
    assert_true(strlen(tiny) < sizeof tiny);
}

static void test_abort_ends_the_process(void **state) {
    (void)state;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, NULL);
        signal(SIGABRT, SIG_IGN);
        os_abort();
    }
    int status;
    assert_true(waitpid(child, &status, 0) == child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_page_size),
        cmocka_unit_test(test_map_is_zero_aligned_and_writable),
        cmocka_unit_test(test_impossible_maps_are_refused),
        cmocka_unit_test(test_reservation_reads_as_zero_until_committed),
        cmocka_unit_test(test_guard_and_back),
        cmocka_unit_test(test_purged_memory_reads_as_zero),
        cmocka_unit_test(test_resize_in_place),
        cmocka_unit_test(test_move),
        cmocka_unit_test(test_every_call_is_counted),
        cmocka_unit_test(test_wishes_about_huge_pages),
        cmocka_unit_test(test_clock_never_goes_back),
        cmocka_unit_test(test_random_differs),
        cmocka_unit_test(test_write_and_duplicate),
        cmocka_unit_test(test_describes_a_mapping),
        cmocka_unit_test(test_abort_ends_the_process),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
