// A line of text in a fixed buffer, for messages from inside the allocator: no allocation, no
// stdio, no locale. What does not fit is cut and the line then ends in "...".
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TEXT_BYTES_MAX = 1024 };

// Invariant: count <= TEXT_BYTES_MAX. Not NUL-terminated. Start with `struct text line = {0}` or,
// to leave the buffer untouched, with text_clear.
struct text {
    size_t count;
    bool cut;
    char bytes[TEXT_BYTES_MAX];
};

void text_clear(struct text *text);
void text_char(struct text *text, char c);
void text_string(struct text *text, const char *string);
void text_bytes(struct text *text, const char *bytes, size_t count);
// Bytes of unknown origin: unprintable ones as \xNN, at most `count_max` of them, then "...".
void text_escaped(struct text *text, const char *bytes, size_t count, size_t count_max);
void text_unsigned(struct text *text, uint64_t value);
// With the prefix 0x and no leading zeros.
void text_hex(struct text *text, uint64_t value);
// Adds spaces until the line is `column` bytes long.
void text_pad(struct text *text, size_t column);
// Writes the line to `fd` with the raw system call and clears it. errno is preserved; what cannot
// be written is dropped, since there is nobody to tell.
void text_flush(struct text *text, int fd);
