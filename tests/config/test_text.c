// The text writer: every form it prints, and what happens at the end of its buffer.
#include "base/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void assert_text(const struct text *text, const char *expected) {
    assert_int_equal(text->count, strlen(expected));
    assert_memory_equal(text->bytes, expected, text->count);
}

static void numbers_at_their_limits(void **state) {
    (void)state;
    struct text text;
    text_clear(&text);
    text_unsigned(&text, 0);
    text_char(&text, ' ');
    text_unsigned(&text, UINT64_MAX);
    text_char(&text, ' ');
    text_hex(&text, 0);
    text_char(&text, ' ');
    text_hex(&text, UINT64_MAX);
    assert_text(&text, "0 18446744073709551615 0x0 0xffffffffffffffff");
}

static void numbers_agree_with_printf(void **state) {
    (void)state;
    uint64_t value = 0x9e3779b97f4a7c15;
    for (int i = 0; i < 10000; i++) {
        char expected[64];
        struct text text;
        text_clear(&text);
        text_unsigned(&text, value >> (i % 64));
        text_hex(&text, value >> (i % 64));
        snprintf(expected, sizeof expected, "%llu0x%llx", (unsigned long long)(value >> (i % 64)),
                 (unsigned long long)(value >> (i % 64)));
        assert_text(&text, expected);
        value = value * 6364136223846793005u + 1442695040888963407u;
    }
}

static void escapes(void **state) {
    (void)state;
    struct text text;
    text_clear(&text);
    text_escaped(&text, "a\x1b[31m\n\0\xff", 9, 64);
    assert_text(&text, "a\\x1b[31m\\x0a\\x00\\xff");
    text_clear(&text);
    text_escaped(&text, "abcdef", 6, 3);
    assert_text(&text, "abc...");
}

static void padding(void **state) {
    (void)state;
    struct text text;
    text_clear(&text);
    text_string(&text, "ab");
    text_pad(&text, 5);
    text_char(&text, '|');
    text_pad(&text, 3);
    assert_text(&text, "ab   |");
}

static void full_buffer_is_cut_and_marked(void **state) {
    (void)state;
    struct text text;
    // Every number of bytes around the limit, given one by one and at once.
    for (size_t count = TEXT_BYTES_MAX - 8; count < TEXT_BYTES_MAX + 8; count++) {
        static char long_string[TEXT_BYTES_MAX + 16];
        memset(long_string, 'x', sizeof long_string);
        text_clear(&text);
        for (size_t i = 0; i < count; i++) {
            text_char(&text, 'x');
        }
        struct text at_once;
        text_clear(&at_once);
        text_bytes(&at_once, long_string, count);
        assert_int_equal(text.count, at_once.count);
        assert_memory_equal(text.bytes, at_once.bytes, text.count);
        assert_true(text.count <= TEXT_BYTES_MAX);
        if (count > TEXT_BYTES_MAX - 4) {
            assert_true(text.cut);
            assert_memory_equal(text.bytes + text.count - 4, "...\n", 4);
        } else {
            assert_false(text.cut);
            assert_int_equal(text.count, count);
        }
    }
    text_pad(&text, TEXT_BYTES_MAX * 2);  // ends, though the column is never reached
    assert_true(text.count <= TEXT_BYTES_MAX);
}

static void flush_writes_clears_and_keeps_errno(void **state) {
    (void)state;
    int ends[2];
    char got[32];
    struct text text;
    assert_int_equal(pipe(ends), 0);
    text_clear(&text);
    text_string(&text, "one line\n");
    errno = 77;
    text_flush(&text, ends[1]);
    assert_int_equal(errno, 77);
    assert_int_equal(text.count, 0);
    assert_int_equal(read(ends[0], got, sizeof got), 9);
    assert_memory_equal(got, "one line\n", 9);

    close(ends[1]);
    text_string(&text, "lost");
    errno = 78;
    text_flush(&text, ends[1]);  // a closed descriptor: dropped, no error
    assert_int_equal(errno, 78);
    assert_int_equal(text.count, 0);
    close(ends[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_at_their_limits),
        cmocka_unit_test(numbers_agree_with_printf),
        cmocka_unit_test(escapes),
        cmocka_unit_test(padding),
        cmocka_unit_test(full_buffer_is_cut_and_marked),
        cmocka_unit_test(flush_writes_clears_and_keeps_errno),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
