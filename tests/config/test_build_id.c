// The build-id of a program by its headers: where they say where they are, and where they do not, as in a static program that may lie
// anywhere.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "config/build_id.h"

// The first page of a program's file, as it is loaded.
struct image {
    _Alignas(4096) ElfW(Ehdr) file;
    ElfW(Phdr) headers[3];
    ElfW(Nhdr) note;
    char owner[4];
    uint8_t id[20];
};

static struct image image_with(ElfW(Phdr) first, uintptr_t address) {
    struct image image = {.headers = {first,
                                      {.p_type = PT_LOAD, .p_offset = 0, .p_vaddr = address},
                                      {.p_type = PT_NOTE,
                                       .p_align = 4,
                                       .p_vaddr = address + offsetof(struct image, note),
                                       .p_memsz = sizeof image - offsetof(struct image, note)}},
                          .note = {sizeof image.owner, sizeof image.id, NT_GNU_BUILD_ID},
                          .owner = "GNU"};
    for (unsigned i = 0; i < sizeof image.id; i++) {
        image.id[i] = (uint8_t)(i + 1);
    }
    return image;
}

static void expect_id(const struct image *image) {
    const struct build_id id = build_id_of_program(image->headers, ARRAY_COUNT(image->headers));
    assert_int_equal(id.count, sizeof image->id);
    assert_memory_equal(id.bytes, image->id, sizeof image->id);
}

static void test_headers_that_say_where_they_are(void **state) {
    (void)state;
    const struct image image = image_with(
        (ElfW(Phdr)){.p_type = PT_PHDR, .p_vaddr = 0x400000 + offsetof(struct image, headers)},
        0x400000);
    expect_id(&image);
}

static void test_static_program_that_may_lie_anywhere(void **state) {
    (void)state;
    const struct image image = image_with((ElfW(Phdr)){.p_type = PT_NULL}, 0);
    expect_id(&image);
}

static void test_program_that_loads_no_headers_has_none(void **state) {
    (void)state;
    struct image image = image_with((ElfW(Phdr)){.p_type = PT_NULL}, 0);
    image.headers[1].p_offset = 4096;
    assert_int_equal(build_id_of_program(image.headers, ARRAY_COUNT(image.headers)).count, 0);
}

static bool parses(const char *digits) {
    struct build_id id;
    return build_id_parse((struct slice){digits, strlen(digits)}, &id);
}

static void test_digits(void **state) {
    (void)state;
    struct build_id id;
    assert_true(build_id_parse((struct slice){"00fFa9", 6}, &id));
    assert_int_equal(id.count, 3);
    assert_memory_equal(id.bytes, "\x00\xff\xa9", 3);
    static const char *const wrong[] = {"", "0", "000", "0g", "g0", "00 1", "0x", "-1", "00:1"};
    for (size_t i = 0; i < ARRAY_COUNT(wrong); i++) {
        assert_false(parses(wrong[i]));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_headers_that_say_where_they_are),
        cmocka_unit_test(test_static_program_that_may_lie_anywhere),
        cmocka_unit_test(test_program_that_loads_no_headers_has_none),
        cmocka_unit_test(test_digits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
