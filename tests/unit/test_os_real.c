// What the simulated system has not: pieces of mappings that the program divides, and huge pages.
#include "isolate.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/bits.h"
#include "filter.h"
#include "os/file.h"
#include "os/os.h"

static void test_move_of_a_divided_mapping_is_refused(void **state) {
    (void)state;
    const size_t page = os_page_bytes();
    char *start = os_map(8 * page, page);
    char *destination = os_map(8 * page, page);
    assert_non_null(start);
    assert_non_null(destination);
    memset(start, 3, 8 * page);
    memset(destination, 4, 8 * page);
    assert_int_equal(mprotect(start + page, 2 * page, PROT_READ), 0);
    assert_int_equal(os_move(start, 8 * page, destination, 8 * page, true), OS_MOVE_REFUSED);
    for (size_t i = 0; i < 8 * page; i++) {
        assert_int_equal(start[i], 3);
    }
    memset(destination, 5, 8 * page);
    // One piece of it moves.
    assert_int_equal(os_move(start + 3 * page, 5 * page, destination, 5 * page, true), OS_MOVED);
    assert_int_equal(destination[0], 3);
    assert_int_equal(destination[5 * page], 5);
    assert_true(os_unmap(start, 3 * page));
    assert_true(os_unmap(destination, 8 * page));
}

// It stands still while the thread sleeps.
static void test_processor_time(void **state) {
    (void)state;
    const uint64_t before_ns = os_thread_cpu_ns();
    assert_true(before_ns > 0);
    const struct timespec pause = {0, 50 * 1000 * 1000};
    assert_int_equal(nanosleep(&pause, NULL), 0);
    const uint64_t after_ns = os_thread_cpu_ns();
    assert_in_range(after_ns - before_ns, 0, 25 * 1000 * 1000);
    // And goes on while it works.
    const uint64_t process_ns = os_process_cpu_ns();
    assert_true(process_ns >= after_ns);
    while (os_thread_cpu_ns() - after_ns < 1000 * 1000) {
    }
    assert_true(os_process_cpu_ns() - process_ns >= 500 * 1000);
}

static void test_processors_are_those_of_the_process(void **state) {
    (void)state;
    cpu_set_t before;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_int_equal(os_processors(), CPU_COUNT(&before));
    cpu_set_t one;
    CPU_ZERO(&one);
    for (unsigned i = 0; CPU_COUNT(&one) == 0; i++) {
        if (CPU_ISSET(i, &before)) {
            CPU_SET(i, &one);
        }
    }
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(os_processors(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

static uint64_t madvise_calls(void) {
    return atomic_load_relaxed(&os_call_counters.calls[OS_MADVISE]);
}

// A part given back of each huge page: the call that splits it comes for each end that lies within one.
static void test_splits_at_the_ends(void **state) {
    (void)state;
    char *start = os_map(8 * MIB, 2 * MIB);
    assert_non_null(start);
    const struct {
        size_t at, bytes;
        unsigned calls;
    } rows[] = {
        {0, 2 * MIB, 0},
        {0, 8 * MIB, 0},
        {0, 64 * KIB, 1},
        {64 * KIB, 64 * KIB, 1},
        {64 * KIB, 2 * MIB - 64 * KIB, 1},
        {64 * KIB, 2 * MIB, 2},
        {0, 2 * MIB + 64 * KIB, 1},
        {2 * MIB - 64 * KIB, 4 * MIB + 128 * KIB, 2},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        const uint64_t before = madvise_calls();
        os_split_huge_pages(start + rows[i].at, rows[i].bytes);
        assert_int_equal(madvise_calls() - before, rows[i].calls);
    }
    assert_true(os_unmap(start, 8 * MIB));
}

static void test_first_touch_is_timed(void **state) {
    (void)state;
    const size_t page = os_page_bytes();
    char *start = os_map(2 * page, page);
    assert_non_null(start);
    os_advise_huge_pages(start, 2 * page, OS_HUGE_PAGES_NEVER);
    assert_int_equal(os_resident_bytes(start, 2 * page), 0);
    assert_true(os_touch_ns(start + page) < UINT64_C(10000000000));
    assert_int_equal(os_resident_bytes(start, 2 * page), page);
    assert_int_equal(start[page], 0);
    assert_true(os_unmap(start, 2 * page));
}

static void test_resident_bytes(void **state) {
    (void)state;
    const size_t page = os_page_bytes();
    const size_t bytes = 1100 * page;  // more than one call asks for
    char *start = os_map(bytes, page);
    assert_non_null(start);
    os_advise_huge_pages(start, bytes, OS_HUGE_PAGES_NEVER);
    assert_int_equal(os_resident_bytes(start, bytes), 0);
    start[0] = start[7 * page] = start[1099 * page] = 1;
    assert_int_equal(os_resident_bytes(start, bytes), 3 * page);
    os_split_huge_pages(start, 2 * page);
    assert_true(os_purge(start, 2 * page));
    assert_int_equal(os_resident_bytes(start, bytes), 2 * page);
    assert_true(os_unmap(start, bytes));
}

// An emulator has no seccomp, and then nothing can be refused there; no test is run under one of x86-64.
static bool refuse(const struct filter_instruction *code, size_t count) {
    const bool installed = filter_install(code, count);
    if (!installed) {
#if defined(__x86_64__)
        fail_msg("seccomp is needed for this test: errno %d", errno);
#endif
        print_message("no seccomp: what it would refuse is not tested\n");
    }
    return installed;
}

static bool refuse_moves(void) {
    const struct filter_instruction code[] = {
        {LOAD_WORD, 0, 0, NUMBER_AT},          {JUMP_IF_EQUAL, 0, 3, SYS_mremap},
        {LOAD_WORD, 0, 0, FOURTH_ARGUMENT_AT}, {JUMP_IF_EQUAL, 0, 1, MREMAP_MAYMOVE | MREMAP_FIXED},
        {RETURN, 0, 0, FAIL_WITH_ENOMEM},      {RETURN, 0, 0, ALLOW},
    };
    return refuse(code, ARRAY_COUNT(code));
}

// As the list of mappings has it: an emulator's other figures are its own.
static uint64_t mapped_bytes(void) {
    static char text[256 * 1024];
    const int file = open("/proc/self/maps", O_RDONLY);
    size_t length = 0;
    ssize_t count;
    while ((count = read(file, text + length, sizeof text - 1 - length)) > 0) {
        length += (size_t)count;
    }
    close(file);
    text[length] = 0;
    uint64_t bytes = 0;
    for (char *line = text; *line != 0; line = strchr(line, '\n') + 1) {
        char *end;
        const uint64_t first = strtoull(line, &end, 16);
        bytes += strtoull(end + 1, NULL, 16) - first;
    }
    return bytes;
}

// A mapping grows by moving to wherever there is room. Another one lies behind it, or one of a few pages on either side, which turn
// the multiples away from where the system would put it.
static void test_move_anywhere(void **state) {
    (void)state;
    const size_t page = os_page_bytes();
    const uint64_t before_bytes = mapped_bytes();
    for (size_t alignment = page; alignment <= 1024 * page; alignment *= 4) {
        for (size_t odd_pages = 0; odd_pages < 8; odd_pages++) {
            const size_t bytes = (100 + odd_pages) * page;
            char *behind = os_map(page, page);
            char *start = os_map(bytes, page);
            char *before = os_map((1 + odd_pages) * page, page);
            memset(start, 3, bytes);
            char *moved = os_move_anywhere(start, bytes, bytes + 50 * page, alignment);
            assert_non_null(moved);
            assert_int_equal((uintptr_t)moved % alignment, 0);
            for (size_t i = 0; i < bytes + 50 * page; i += 64) {
                assert_int_equal(moved[i], i < bytes ? 3 : 0);
            }
            assert_true(os_unmap(moved, bytes + 50 * page));
            assert_true(os_unmap(behind, page));
            assert_true(os_unmap(before, (1 + odd_pages) * page));
            // Nothing else stays of it.
            assert_int_equal(mapped_bytes(), before_bytes);
        }
    }
    char *start = os_map(4 * page, page);
    memset(start, 5, 4 * page);
    assert_null(os_move_anywhere(start, 4 * page, (size_t)1 << 60, 64 * page));
    assert_int_equal(start[4 * page - 1], 5);
}

// Nor is a mapping lengthened beyond so much.
static bool refuse_to_unmap(uint32_t bytes_max) {
    const struct filter_instruction code[] = {
        {LOAD_WORD, 0, 0, NUMBER_AT},
        {JUMP_IF_EQUAL, 3, 0, SYS_munmap},
        {JUMP_IF_EQUAL, 0, 3, SYS_mremap},
        {LOAD_WORD, 0, 0, THIRD_ARGUMENT_AT},
        {JUMP_IF_GREATER, 0, 1, bytes_max},
        {RETURN, 0, 0, FAIL_WITH_ENOMEM},
        {RETURN, 0, 0, ALLOW},
    };
    return refuse(code, ARRAY_COUNT(code));
}

// What the system does not cut off holds no second copy of what has moved.
static void test_move_anywhere_leaves_no_copy(void **state) {
    (void)state;
    const size_t page = os_page_bytes();
    const size_t bytes = 100 * page;
    const size_t alignment = 1024 * page;
    char *start = os_map(bytes, page);
    memset(start, 3, bytes);
    if (!refuse_to_unmap((uint32_t)(2 * bytes + alignment - page))) {
        return;
    }
    const char *moved = os_move_anywhere(start, bytes, 2 * bytes, alignment);
    assert_non_null(moved);
    assert_int_equal((uintptr_t)moved % alignment, 0);
    assert_int_equal(moved[bytes - 1], 3);
    char line[64];
    assert_int_equal(os_describe_mapping((uintptr_t)moved, line, sizeof line), OS_MAPPING_FOUND);
    const uintptr_t first = greatest_u64(strtoull(line, NULL, 16), (uintptr_t)moved - alignment);
    for (const char *at = (const char *)first; at < moved; at += page) {
        assert_int_not_equal(*at, 3);
    }
}

// What became of the place that a block was to move to, when the system refuses.
static void test_place_of_a_refused_move(void **state) {
    (void)state;
    const size_t page = os_page_bytes();
    char *start = os_map(4 * page, page);
    char *anothers = os_map(4 * page, page);
    char *reserved = os_reserve_aligned(8 * page, page);
    assert_non_null(start);
    assert_non_null(anothers);
    assert_non_null(reserved);
    memset(anothers, 7, 4 * page);
    if (!refuse_moves()) {
        return;
    }
    // Mapped there by another thread, all of it or in part, as is seen by its access.
    assert_int_equal(os_move(start, 4 * page, anothers, 4 * page, false), OS_DESTINATION_LOST);
    assert_true(os_guard(anothers, page));
    assert_int_equal(os_move(start, 4 * page, anothers, 4 * page, false), OS_DESTINATION_LOST);
    assert_int_equal(anothers[4 * page - 1], 7);
    // A reservation, or a part of one, that the system left where it was; and one that it took, which is there again.
    assert_int_equal(os_move(start, 4 * page, reserved + page, 4 * page, false), OS_MOVE_REFUSED);
    assert_true(os_unmap(reserved, 8 * page));
    assert_int_equal(os_move(start, 4 * page, reserved, 8 * page, false), OS_MOVE_REFUSED);
    assert_true(os_commit(reserved, 8 * page));
    memset(reserved, 1, 8 * page);
    // Of what was mapped it is known alone that all of it is there.
    assert_int_equal(os_move(start, 4 * page, reserved, 8 * page, true), OS_MOVE_REFUSED);
}

static bool kill_at_mremap_beyond(uint32_t bytes_max) {
    const struct filter_instruction code[] = {
        {LOAD_WORD, 0, 0, NUMBER_AT},         {JUMP_IF_EQUAL, 0, 3, SYS_mremap},
        {LOAD_WORD, 0, 0, THIRD_ARGUMENT_AT}, {JUMP_IF_GREATER, 0, 1, bytes_max},
        {RETURN, 0, 0, KILL_PROCESS},         {RETURN, 0, 0, ALLOW},
    };
    return refuse(code, ARRAY_COUNT(code));
}

// Linux up to 5.14 counts as committed, for a moment and for all processes, what a mapping is asked to be lengthened by.
static void test_pieces_are_told_apart_without_a_large_request(void **state) {
    (void)state;
    const size_t page = os_page_bytes();
    char *start = os_map(8 * page, page);
    char *destination = os_map(4 * page, page);
    assert_non_null(start);
    assert_non_null(destination);
    assert_true(os_unmap(start + 4 * page, 4 * page));
    if (!kill_at_mremap_beyond((uint32_t)(5 * page))) {
        return;
    }
    // A hole follows, and is one afterwards.
    assert_int_equal(os_move(start + 2 * page, 2 * page, destination, 2 * page, true), OS_MOVED);
    unsigned char resident;
    assert_int_equal(mincore(start + 2 * page, page, &resident), -1);
    assert_int_equal(os_move(start, 2 * page, destination + 2 * page, 2 * page, true), OS_MOVED);
    assert_true(os_unmap(destination, 4 * page));
    unsigned char residents[4];
    assert_int_equal(mincore(start, 4 * page, residents), -1);
}

static bool know_no_huge_pages(void) {
    const struct filter_instruction code[] = {
        {LOAD_WORD, 0, 0, NUMBER_AT},         {JUMP_IF_EQUAL, 0, 5, SYS_madvise},
        {LOAD_WORD, 0, 0, THIRD_ARGUMENT_AT}, {JUMP_IF_EQUAL, 2, 0, MADV_FREE},
        {JUMP_IF_EQUAL, 1, 0, MADV_HUGEPAGE}, {JUMP_IF_EQUAL, 0, 1, MADV_NOHUGEPAGE},
        {RETURN, 0, 0, FAIL_WITH_EINVAL},     {RETURN, 0, 0, ALLOW},
    };
    return refuse(code, ARRAY_COUNT(code));
}

// Kernels for real time have none, and `inspect` warns of calls that failed.
static void test_a_kernel_without_huge_pages_fails_nothing(void **state) {
    (void)state;
    char *start = os_map(4 * MIB, 4 * MIB);
    assert_non_null(start);
    if (!know_no_huge_pages()) {
        return;
    }
    const uint64_t failures = atomic_load_relaxed(&os_call_counters.failures);
    os_advise_huge_pages(start, 4 * MIB, OS_HUGE_PAGES_NEVER);
    os_advise_huge_pages(start, 4 * MIB, OS_HUGE_PAGES_ALWAYS);
    os_split_huge_pages(start, MIB);
    assert_int_equal(atomic_load_relaxed(&os_call_counters.failures), failures);
    // Any other refusal is one.
    assert_true(os_unmap(start, 4 * MIB));
    assert_false(os_purge(start, 4 * MIB));
    assert_int_equal(atomic_load_relaxed(&os_call_counters.failures), failures + 1);
}

static bool is_pending(int number) {
    sigset_t pending;
    assert_int_equal(sigpending(&pending), 0);
    return sigismember(&pending, number) == 1;
}

// Either signal would end this process.
static void test_write_to_nobody_ends_nothing(void **state) {
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    os_write(ends[1], "x", 1);
    const int file = open("/tmp", O_TMPFILE | O_WRONLY, 0600);
    if (file >= 0) {
        struct rlimit before;
        assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
        const struct rlimit one = {1, before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &one), 0);
        os_write(file, "xyz", 3);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_int_equal(lseek(file, 0, SEEK_END), 1);
    }
    sigset_t mask;
    assert_int_equal(sigprocmask(SIG_BLOCK, NULL, &mask), 0);
    assert_int_equal(sigismember(&mask, SIGPIPE), 0);
    // One that was pending before stays.
    sigaddset(&mask, SIGPIPE);
    assert_int_equal(sigprocmask(SIG_BLOCK, &mask, NULL), 0);
    os_write(ends[1], "x", 1);
    assert_false(is_pending(SIGPIPE));
    raise(SIGPIPE);
    os_write(ends[1], "x", 1);
    assert_true(is_pending(SIGPIPE));
}

// A pipe that gives one of two parts at a time, and its end; `path` leads to it.
static void make_file_in_parts(const char *one, const char *two, char *path, size_t capacity) {
    int ends[2];
    assert_int_equal(pipe2(ends, O_DIRECT), 0);
    assert_int_equal(write(ends[1], one, strlen(one)), strlen(one));
    assert_int_equal(write(ends[1], two, strlen(two)), strlen(two));
    assert_int_equal(close(ends[1]), 0);
    snprintf(path, capacity, "/proc/self/fd/%d", ends[0]);
}

static void test_a_file_in_parts_fills_no_more_than_its_place(void **state) {
    (void)state;
    char path[64], text[17] = "................";
    make_file_in_parts("abc", "0123456789", path, sizeof path);
    assert_int_equal(os_file_read(path, text, 8), 8);
    assert_string_equal(text, "abc01234........");
}

static int append_part(const char *part, size_t bytes, void *context) {
    strncat(context, part, bytes);
    return part[0] == '0' ? EDOM : 0;
}

// Number 0 is a file's too, where the program has closed its standard input. Of a folder nothing can be read.
static void test_a_file_is_handed_on_in_parts(void **state) {
    (void)state;
    char path[64], buffer[8], text[32] = "";
    make_file_in_parts("abc", "def", path, sizeof path);
    assert_int_equal(close(0), 0);
    errno = 0;
    assert_int_equal(os_file_each(path, buffer, sizeof buffer, append_part, text), 0);
    assert_string_equal(text, "abcdef");
    make_file_in_parts("0", "abc", path, sizeof path);
    assert_int_equal(os_file_each(path, buffer, sizeof buffer, append_part, text), EDOM);
    assert_string_equal(text, "abcdef0");
    assert_int_equal(os_file_each("/", buffer, sizeof buffer, append_part, text), EISDIR);
    assert_int_equal(os_file_each("/none", buffer, sizeof buffer, append_part, text), ENOENT);
    assert_int_equal(errno, 0);
}

static void test_a_mapping_is_put_over_another(void **state) {
    (void)state;
    const size_t page = os_page_bytes();
    char *start = os_map(page, page);
    char *place = os_map(page, page);
    memset(start, 3, page);
    memset(place, 4, page);
    errno = 0;
    assert_true(os_file_put_over(start, place, page));
    assert_int_equal(place[page - 1], 3);
    assert_true(os_file_put_over(NULL, place, page));
    assert_int_equal(place[page - 1], 0);
    place[0] = 5;
    assert_false(os_file_put_over(place + 1, place, page));
    assert_int_equal(errno, 0);
}

// Line for line, wherever the parts end in which the file is read.
static void test_each_mapping_is_described(void **state) {
    (void)state;
    const size_t page = os_page_bytes();
    // Of different access, so that each has a line of its own. The first and the last may share one with a neighbour's.
    char *start = os_map(65 * page, page);
    for (size_t i = 0; i < 65; i += 2) {
        assert_int_equal(mprotect(start + i * page, page, PROT_READ), 0);
    }
    for (size_t i = 1; i < 64; i++) {
        char line[256], expected[64];
        const uintptr_t at = (uintptr_t)start + i * page;
        snprintf(expected, sizeof expected, "%lx-%lx %s ", (unsigned long)at,
                 (unsigned long)(at + page), i % 2 == 0 ? "r--p" : "rw-p");
        assert_int_equal(os_describe_mapping(at, line, sizeof line), OS_MAPPING_FOUND);
        assert_memory_equal(line, expected, strlen(expected));
    }
}

static void test_mappings_that_cannot_be_read(void **state) {
    (void)state;
    const struct rlimit none = {0, 0};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    char line[64];
    assert_int_equal(os_describe_mapping((uintptr_t)line, line, sizeof line), OS_MAPPING_UNKNOWN);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file_in_parts_fills_no_more_than_its_place),
        cmocka_unit_test(test_a_file_is_handed_on_in_parts),
        cmocka_unit_test(test_a_mapping_is_put_over_another),
        cmocka_unit_test(test_each_mapping_is_described),
        cmocka_unit_test(test_mappings_that_cannot_be_read),
        cmocka_unit_test(test_move_of_a_divided_mapping_is_refused),
        cmocka_unit_test(test_pieces_are_told_apart_without_a_large_request),
        cmocka_unit_test(test_move_anywhere),
        cmocka_unit_test(test_move_anywhere_leaves_no_copy),
        cmocka_unit_test(test_place_of_a_refused_move),
        cmocka_unit_test(test_processor_time),
        cmocka_unit_test(test_processors_are_those_of_the_process),
        cmocka_unit_test(test_splits_at_the_ends),
        cmocka_unit_test(test_a_kernel_without_huge_pages_fails_nothing),
        cmocka_unit_test(test_first_touch_is_timed),
        cmocka_unit_test(test_resident_bytes),
        cmocka_unit_test(test_write_to_nobody_ends_nothing),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
