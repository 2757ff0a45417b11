// A machine with pages of 64 KiB, as far as the library is told: its huge pages are of 512 MiB.
#include "isolate.h"

#include <sys/auxv.h>

#include "base/atomic.h"
#include "base/bits.h"
#include "os/os.h"

// In place of the C library's.
unsigned long getauxval(unsigned long type) {
    return type == AT_PAGESZ ? 64 * KIB : 0;
}

static void test_length_of_a_huge_page(void **state) {
    (void)state;
    assert_int_equal(os_page_bytes(), 64 * KIB);
    assert_int_equal(os_huge_page_bytes(), 512 * MIB);
}

static uint64_t madvise_calls(void) {
    return atomic_load_relaxed(&os_call_counters.calls[OS_MADVISE]);
}

// A superslab lies within a huge page wherever it starts.
static void test_splits_at_the_ends(void **state) {
    (void)state;
    char *start = os_reserve_aligned(1024 * MIB, 512 * MIB);
    assert_non_null(start);
    assert_true(os_commit(start, 1024 * MIB));
    const struct {
        size_t at, bytes;
        unsigned calls;
    } rows[] = {
        {0, 4 * MIB, 1},   {4 * MIB, 4 * MIB, 1}, {508 * MIB, 4 * MIB, 1},  {508 * MIB, 8 * MIB, 2},
        {0, 512 * MIB, 0}, {0, 1024 * MIB, 0},    {64 * KIB, 512 * MIB, 2},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        const uint64_t before = madvise_calls();
        os_split_huge_pages(start + rows[i].at, rows[i].bytes);
        assert_int_equal(madvise_calls() - before, rows[i].calls);
    }
    assert_true(os_unmap(start, 1024 * MIB));
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_length_of_a_huge_page),
        cmocka_unit_test(test_splits_at_the_ends),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
