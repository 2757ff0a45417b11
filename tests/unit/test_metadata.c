// Memory for the allocator's own structures.
#include "isolate.h"

#include <string.h>

#include "base/bits.h"
#include "fake_os.h"
#include "space/metadata.h"

enum { PIECE_COUNT = 300, OPERATIONS = 5000 };

struct piece {
    unsigned char *start;
    size_t bytes;
    unsigned char mark;
};

static size_t natural_alignment(size_t bytes) {
    const size_t rounded = align_up(bytes, 64);
    const size_t alignment = rounded & (~rounded + 1);
    return alignment < 4096 ? alignment : 4096;
}

static void require_filled(const unsigned char *start, size_t bytes, unsigned char with) {
    for (size_t i = 0; i < bytes; i++) {
        if (start[i] != with) {
            fail_msg("byte %zu of %zu is %#x, not %#x", i, bytes, start[i], with);
        }
    }
}

static size_t choose_bytes(uint64_t *random_state) {
    const uint64_t dice = random_next(random_state);
    switch (dice % 8) {
    case 0:
        return 512;  // a node of a thread cache
    case 1:
        return 1 + dice / 8 % 70000;
    default:
        return 1 + dice / 8 % 1500;
    }
}

static void test_random_pieces(void **state) {
    (void)state;
    uint64_t random_state = test_seed();
    static struct piece pieces[PIECE_COUNT];
    for (unsigned n = 0; n < OPERATIONS; n++) {
        struct piece *piece = &pieces[random_next(&random_state) % PIECE_COUNT];
        if (piece->start == NULL) {
            piece->bytes = choose_bytes(&random_state);
            piece->start = metadata_alloc(piece->bytes);
            assert_non_null(piece->start);
            assert_int_equal((uintptr_t)piece->start % natural_alignment(piece->bytes), 0);
            require_filled(piece->start, piece->bytes, 0);
            piece->mark = (unsigned char)(n % 255 + 1);
            memset(piece->start, piece->mark, piece->bytes);
        } else {
            // Nobody else was given these bytes.
            require_filled(piece->start, piece->bytes, piece->mark);
            metadata_free(piece->start, piece->bytes);
            piece->start = NULL;
        }
    }
}

static void test_freed_piece_serves_the_next_of_its_size(void **state) {
    (void)state;
    char *first = metadata_alloc(500);
    memset(first, 1, 500);
    metadata_free(first, 500);
    assert_ptr_not_equal(metadata_alloc(400), first);
    char *again = metadata_alloc(512);
    assert_ptr_equal(again, first);
    for (size_t i = 0; i < 512; i++) {
        assert_int_equal(again[i], 0);
    }
}

static void test_bytes_are_counted(void **state) {
    (void)state;
    assert_int_equal(metadata_bytes(), 0);
    void *piece = metadata_alloc(100);
    assert_int_equal(metadata_bytes(), 128);
    metadata_free(piece, 100);
    assert_int_equal(metadata_bytes(), 128);
    metadata_alloc(100);
    assert_int_equal(metadata_bytes(), 128);
    metadata_alloc(MIB);
    assert_int_equal(metadata_bytes(), 128 + MIB);
}

static void test_big_pieces(void **state) {
    (void)state;
    char *small = metadata_alloc(64);
    for (size_t bytes = 16 * KIB; bytes <= 4 * MIB; bytes += 48 * KIB + 64) {
        char *big = metadata_alloc(bytes);
        assert_non_null(big);
        assert_int_equal((uintptr_t)big % natural_alignment(bytes), 0);
        memset(big, 1, bytes);
        metadata_free(big, bytes);
    }
    assert_int_equal(small[0], 0);
}

static void test_refused_mapping(void **state) {
    (void)state;
    fake_os_fail(OS_MMAP, 1, true);
    assert_null(metadata_alloc(64));
    assert_null(metadata_alloc(MIB));
    assert_int_equal(metadata_bytes(), 0);
    fake_os_mend();
    char *piece = metadata_alloc(64);
    assert_non_null(piece);
    fake_os_fail(OS_MMAP, 1, true);
    // What is mapped goes on serving, and freed pieces too.
    assert_non_null(metadata_alloc(64));
    metadata_free(piece, 64);
    assert_null(metadata_alloc(MIB));
    unsigned served = 0;
    while (metadata_alloc(1024) != NULL) {
        served++;
    }
    assert_in_range(served, 250, 256);
    assert_ptr_equal(metadata_alloc(64), piece);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_pieces),
        cmocka_unit_test(test_freed_piece_serves_the_next_of_its_size),
        cmocka_unit_test(test_bytes_are_counted),
        cmocka_unit_test(test_big_pieces),
        cmocka_unit_test(test_refused_mapping),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
