// The GNU build-id of a loaded file: what a profile knows programs and libraries by. Nothing here
// allocates, locks, or reads anything but the file's own mapping.
#pragma once

#include "config/slice.h"

#include <link.h>

// Linkers make 8 (xxh), 16 (md5, uuid) or 20 bytes (sha1).
#define BUILD_ID_BYTES_MAX 32

struct build_id {
    uint8_t count;  // 0: none
    uint8_t bytes[BUILD_ID_BYTES_MAX];
};

// Of the file whose program headers these are, and whose first byte lies at `file_start`.
struct build_id build_id_of_file(const ElfW(Phdr) * headers, size_t count, uintptr_t file_start);

// Of the main program, by its program headers in memory (AT_PHDR and AT_PHNUM).
struct build_id build_id_of_program(const ElfW(Phdr) * headers, size_t count);

bool build_id_is(const struct build_id *one, const struct build_id *other);

// From hexadecimal digits. False when the slice is anything else, empty or too long.
bool build_id_parse(struct slice digits, struct build_id *out);
