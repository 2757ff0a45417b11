// What the real system makes of mappings that the program divides: the simulated one has no such pieces.
#include "isolate.h"

#include <string.h>
#include <sys/mman.h>

#include "base/bits.h"
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
    assert_false(os_move(start, 8 * page, destination, 8 * page, true));
    for (size_t i = 0; i < 8 * page; i++) {
        assert_int_equal(start[i], 3);
    }
    memset(destination, 5, 8 * page);
    // One piece of it moves.
    assert_true(os_move(start + 3 * page, 5 * page, destination, 5 * page, true));
    assert_int_equal(destination[0], 3);
    assert_int_equal(destination[5 * page], 5);
    assert_true(os_unmap(start, 3 * page));
    assert_true(os_unmap(destination, 8 * page));
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_move_of_a_divided_mapping_is_refused),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
