// Bit arithmetic against versions that look at one bit at a time.
#include "isolate.h"

#include "base/bits.h"

#define RANDOM_WORDS 2000

static bool has(uint64_t word, unsigned index) {
    return (word >> index & 1) != 0;
}

// Words of all densities: stretches of ones and zeros of random lengths, edge cases first.
static uint64_t word_number(unsigned number, uint64_t *random_state) {
    static const uint64_t edges[] = {
        0, 1, UINT64_MAX, UINT64_C(1) << 63, UINT64_MAX - 1, UINT64_MAX >> 1, 0x5555555555555555,
        3};
    if (number < ARRAY_COUNT(edges)) {
        return edges[number];
    }
    const uint64_t a = random_next(random_state);
    const uint64_t b = random_next(random_state);
    const uint64_t c = random_next(random_state);
    switch (number % 4) {
    case 0:
        return a;
    case 1:
        return a & b & c;
    case 2:
        return a | b | c;
    default:
        return (UINT64_MAX << (a % 64)) ^ (UINT64_MAX << (b % 64)) ^ (UINT64_MAX << (c % 64));
    }
}

static void test_scans_and_count(void **state) {
    (void)state;
    uint64_t random_state = test_seed();
    for (unsigned n = 0; n < RANDOM_WORDS; n++) {
        const uint64_t word = word_number(n, &random_state);
        unsigned count = 0;
        unsigned lowest = 64;
        unsigned highest = 64;
        for (unsigned i = 0; i < 64; i++) {
            if (has(word, i)) {
                count++;
                highest = i;
                lowest = lowest == 64 ? i : lowest;
            }
        }
        assert_int_equal(bit_count(word), count);
        if (word != 0) {
            assert_int_equal(bit_lowest(word), lowest);
            assert_int_equal(bit_highest(word), highest);
        }
    }
}

static void test_bit_and_range(void **state) {
    (void)state;
    for (unsigned first = 0; first < 64; first++) {
        assert_true(bit(first) == UINT64_C(1) << first);
        for (unsigned count = 0; first + count <= 64; count++) {
            const uint64_t range = bit_range(first, count);
            for (unsigned i = 0; i < 64; i++) {
                assert_int_equal(has(range, i), i >= first && i < first + count);
            }
        }
    }
}

static void test_lowest_bits(void **state) {
    (void)state;
    uint64_t random_state = test_seed();
    for (unsigned n = 0; n < RANDOM_WORDS; n++) {
        const uint64_t word = word_number(n, &random_state);
        for (unsigned count = 0; count <= 64; count++) {
            uint64_t expected = 0;
            for (unsigned i = 0, found = 0; i < 64 && found < count; i++) {
                if (has(word, i)) {
                    expected |= UINT64_C(1) << i;
                    found++;
                }
            }
            assert_true(bits_lowest(word, count) == expected);
        }
    }
}

// Of the stretch that begins at a bit, if that is one.
static void check_stretch_length(uint64_t word, unsigned first) {
    if (has(word, first)) {
        unsigned ones = 0;
        while (first + ones < 64 && has(word, first + ones)) {
            ones++;
        }
        assert_int_equal(bit_stretch_length(word, first), ones);
    }
}

static void test_stretches(void **state) {
    (void)state;
    uint64_t random_state = test_seed();
    for (unsigned n = 0; n < RANDOM_WORDS / 10; n++) {
        const uint64_t word = word_number(n, &random_state);
        unsigned longest = 0;
        for (unsigned count = 1; count <= 64; count++) {
            uint64_t expected = 0;
            for (unsigned first = 0; first + count <= 64; first++) {
                unsigned ones = 0;
                while (ones < count && has(word, first + ones)) {
                    ones++;
                }
                expected |= ones == count ? UINT64_C(1) << first : 0;
            }
            check_stretch_length(word, count - 1);
            assert_true(bit_stretches(word, count) == expected);
            longest = expected != 0 ? count : longest;
        }
        assert_int_equal(bit_longest_stretch(word), longest);
        assert_int_equal(bit_is_stretch(word), longest == bit_count(word));
    }
}

static void test_powers_and_alignment(void **state) {
    (void)state;
    for (unsigned i = 0; i < 64; i++) {
        const size_t power = (size_t)1 << i;
        assert_true(is_power_of_two(power));
        assert_int_equal(is_power_of_two(power + 1), i == 0);
        assert_int_equal(is_power_of_two(power - 1), i == 1);
    }
    assert_false(is_power_of_two(0));
    for (size_t alignment = 1; alignment <= 256; alignment *= 2) {
        for (size_t value = 0; value < 1000; value++) {
            const size_t up = align_up(value, alignment);
            const size_t down = align_down(value, alignment);
            assert_true(up % alignment == 0 && up >= value && up - value < alignment);
            assert_true(down % alignment == 0 && down <= value && value - down < alignment);
        }
    }
    assert_true(align_down(SIZE_MAX, 4096) == SIZE_MAX - 4095);
}

static void test_least_and_greatest(void **state) {
    (void)state;
    static const uint64_t values[] = {0, 1, 2, UINT64_MAX - 1, UINT64_MAX};
    for (size_t i = 0; i < ARRAY_COUNT(values); i++) {
        for (size_t j = 0; j < ARRAY_COUNT(values); j++) {
            assert_true(least_u64(values[i], values[j]) == values[i < j ? i : j]);
            assert_true(greatest_u64(values[i], values[j]) == values[i < j ? j : i]);
        }
    }
}

// Good enough for what it decides: no bit is stuck, the state never dies.
static void test_random(void **state) {
    (void)state;
    uint64_t random_state = 1;
    unsigned ones[64] = {0};
    for (unsigned n = 0; n < 10000; n++) {
        const uint64_t value = random_next(&random_state);
        assert_true(random_state != 0);
        for (unsigned i = 0; i < 64; i++) {
            ones[i] += has(value, i);
        }
    }
    for (unsigned i = 0; i < 64; i++) {
        assert_in_range(ones[i], 4600, 5400);
    }
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scans_and_count),
        cmocka_unit_test(test_bit_and_range),
        cmocka_unit_test(test_lowest_bits),
        cmocka_unit_test(test_stretches),
        cmocka_unit_test(test_powers_and_alignment),
        cmocka_unit_test(test_least_and_greatest),
        cmocka_unit_test(test_random),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
