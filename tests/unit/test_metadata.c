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
    bool is_aligned;
};

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

static void *next_of(void *piece) {
    return *(void **)piece;
}

static void link_to(void *piece, void *next) {
    *(void **)piece = next;
}

// Of what came in a batch, and of what is to go in one: linked.
static void *taken, *given;
static unsigned given_count;

// One piece, as a cache takes one: of the batch at hand, or of the next.
static void *take_aligned(void) {
    if (taken == NULL) {
        unsigned count;
        taken = metadata_take_aligned(&count);
        if (taken == NULL) {
            return NULL;
        }
        assert_true(count == 1 || count == METADATA_ALIGNED_BATCH);
        void *last = taken;
        for (unsigned i = 1; i < count; i++) {
            last = next_of(last);
        }
        assert_null(next_of(last));
    }
    void *piece = taken;
    taken = next_of(piece);
    return piece;
}

static void give_aligned(void *piece) {
    link_to(piece, given);
    given = piece;
    if (++given_count == METADATA_ALIGNED_BATCH) {
        metadata_give_aligned(given);
        given = NULL;
        given_count = 0;
    }
}

static unsigned char *take(size_t bytes, bool is_aligned) {
    unsigned char *start = is_aligned ? take_aligned() : metadata_alloc(bytes);
    assert_non_null(start);
    const size_t alignment = is_aligned ? METADATA_ALIGNED_BYTES : bytes > 64 ? 128 : 64;
    assert_int_equal((uintptr_t)start % alignment, 0);
    return start;
}

static void test_random_pieces(void **state) {
    (void)state;
    uint64_t random_state = test_seed();
    static struct piece pieces[PIECE_COUNT];
    for (unsigned n = 0; n < OPERATIONS; n++) {
        struct piece *piece = &pieces[random_next(&random_state) % PIECE_COUNT];
        if (piece->start == NULL) {
            piece->is_aligned = random_next(&random_state) % 4 == 0;
            piece->bytes = piece->is_aligned ? METADATA_ALIGNED_BYTES : choose_bytes(&random_state);
            piece->start = take(piece->bytes, piece->is_aligned);
            if (!piece->is_aligned) {
                require_filled(piece->start, piece->bytes, 0);
            }
            piece->mark = (unsigned char)(n % 255 + 1);
            memset(piece->start, piece->mark, piece->bytes);
        } else {
            // Nobody else was given these bytes.
            require_filled(piece->start, piece->bytes, piece->mark);
            if (piece->is_aligned) {
                give_aligned(piece->start);
            } else {
                metadata_free(piece->start, piece->bytes);
            }
            piece->start = NULL;
        }
    }
    assert_int_equal(metadata_check(), 0);
}

// What lies before aligned pieces.
static void test_gaps_serve(void **state) {
    (void)state;
    enum { COUNT = METADATA_ALIGNED_BATCH };
    char *aligned[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        aligned[i] = take_aligned();
        memset(aligned[i], 1, METADATA_ALIGNED_BYTES);
        metadata_alloc(640);
    }
    // Before each 384 bytes of gap, the first of them behind the header of the mapping.
    const uint64_t bytes = metadata_bytes();
    assert_int_equal(bytes, COUNT * (384 + METADATA_ALIGNED_BYTES + 640));
    for (unsigned i = 0; i < 3 * COUNT; i++) {
        char *piece = (i % 2 != 0) ? metadata_alloc_bitmaps(128) : metadata_alloc(128);
        assert_in_range((uintptr_t)piece, (uintptr_t)aligned[0] - 384,
                        (uintptr_t)aligned[COUNT - 1] - 128);
        require_filled((unsigned char *)piece, 128, 0);
        memset(piece, 2, 128);
    }
    assert_int_equal(metadata_bytes(), bytes);
    assert_int_equal(metadata_check(), 0);
    for (unsigned i = 0; i < COUNT; i++) {
        require_filled((unsigned char *)aligned[i], METADATA_ALIGNED_BYTES, 1);
        give_aligned(aligned[i]);
    }
    assert_ptr_equal(take_aligned(), aligned[COUNT - 1]);
    assert_int_equal(metadata_check(), 0);
}

// Batches as they were given, the last one first; what was never in use comes one by one.
static void test_aligned_pieces_come_and_go_together(void **state) {
    (void)state;
    enum { BATCHES = 3, COUNT = BATCHES * METADATA_ALIGNED_BATCH };
    void *pieces[COUNT];
    unsigned count;
    for (unsigned i = 0; i < COUNT; i++) {
        // Nothing is touched ahead.
        pieces[i] = metadata_take_aligned(&count);
        assert_int_equal(count, 1);
        require_filled(pieces[i], METADATA_ALIGNED_BYTES, 0);
    }
    const uint64_t bytes = metadata_bytes();
    for (unsigned i = 0; i < COUNT; i++) {
        memset(pieces[i], (int)i + 1, METADATA_ALIGNED_BYTES);
        const bool is_last = (i + 1) % METADATA_ALIGNED_BATCH == 0;
        link_to(pieces[i], is_last ? NULL : pieces[i + 1]);
    }
    for (unsigned i = 0; i < COUNT; i += METADATA_ALIGNED_BATCH) {
        metadata_give_aligned(pieces[i]);
        assert_int_equal(metadata_check(), 0);
    }
    for (unsigned batch = BATCHES; batch-- > 0;) {
        void *piece = metadata_take_aligned(&count);
        assert_int_equal(count, METADATA_ALIGNED_BATCH);
        for (unsigned i = 0; i < METADATA_ALIGNED_BATCH; i++) {
            assert_ptr_equal(piece, pieces[batch * METADATA_ALIGNED_BATCH + i]);
            piece = next_of(piece);
        }
        assert_null(piece);
        assert_int_equal(metadata_check(), 0);
    }
    metadata_take_aligned(&count);
    assert_int_equal(count, 1);
    assert_true(metadata_bytes() > bytes);
}

// A batch that lost a piece, or has one too many, shows in the check.
static void test_a_broken_batch_is_found(void **state) {
    (void)state;
    void *pieces[METADATA_ALIGNED_BATCH];
    for (unsigned i = 0; i < METADATA_ALIGNED_BATCH; i++) {
        pieces[i] = take_aligned();
    }
    for (unsigned i = 0; i < METADATA_ALIGNED_BATCH; i++) {
        give_aligned(pieces[i]);
    }
    assert_int_equal(metadata_check(), 0);
    void *last = pieces[0];
    link_to(pieces[1], NULL);
    assert_int_equal(metadata_check(), 1);
    link_to(pieces[1], last);
    assert_int_equal(metadata_check(), 0);
}

// All that was handed out may be free; what is freed twice closes a circle, which the check comes out of.
static void test_what_is_freed_twice_is_found(void **state) {
    (void)state;
    void *piece = metadata_alloc(128);
    assert_int_equal(metadata_bytes(), 128);
    metadata_free(piece, 128);
    assert_int_equal(metadata_check(), 0);
    metadata_free(piece, 128);
    assert_int_equal(metadata_check(), 1);
}

static void test_a_batch_given_twice_is_found(void **state) {
    (void)state;
    void *first = NULL;
    for (unsigned i = 0; i < METADATA_ALIGNED_BATCH; i++) {
        void *piece = take_aligned();
        link_to(piece, first);
        first = piece;
    }
    metadata_give_aligned(first);
    assert_int_equal(metadata_check(), 0);
    metadata_give_aligned(first);
    assert_int_equal(metadata_check(), 1);
}

// Two that are no longer than a line share a pair of lines.
static void test_short_pieces_share_a_pair(void **state) {
    (void)state;
    char *first = metadata_alloc(192);
    char *second = metadata_alloc(128);
    assert_ptr_equal(second, first + 256);
    assert_ptr_equal(metadata_alloc(64), first + 192);
    assert_int_equal(metadata_bytes(), 384);
    assert_ptr_equal(metadata_alloc_bitmaps(32), second + 128);
    assert_ptr_equal(metadata_alloc(64), second + 192);
    assert_int_equal(metadata_bytes(), 512);
    assert_int_equal(metadata_check(), 0);
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
        assert_int_equal((uintptr_t)big % 128, 0);
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
    assert_null(take_aligned());
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
        cmocka_unit_test(test_gaps_serve),
        cmocka_unit_test(test_aligned_pieces_come_and_go_together),
        cmocka_unit_test(test_a_broken_batch_is_found),
        cmocka_unit_test(test_what_is_freed_twice_is_found),
        cmocka_unit_test(test_a_batch_given_twice_is_found),
        cmocka_unit_test(test_short_pieces_share_a_pair),
        cmocka_unit_test(test_freed_piece_serves_the_next_of_its_size),
        cmocka_unit_test(test_bytes_are_counted),
        cmocka_unit_test(test_big_pieces),
        cmocka_unit_test(test_refused_mapping),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
