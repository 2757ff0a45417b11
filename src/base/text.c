#include "base/text.h"

#include <string.h>

#include "base/write.h"

static const char digits[] = "0123456789abcdef";
static const char cut_mark[] = "...\n";

void text_clear(struct text *text) {
    text->count = 0;
    text->cut = false;
}

void text_bytes(struct text *text, const char *bytes, size_t count) {
    // The mark's room is never given to the line itself, so that it fits whenever it is needed.
    size_t room = TEXT_BYTES_MAX - (sizeof cut_mark - 1) - text->count;
    if (text->cut) {
        return;
    }
    if (count > room) {
        count = room;
        text->cut = true;
    }
    memcpy(text->bytes + text->count, bytes, count);
    text->count += count;
    if (text->cut) {
        memcpy(text->bytes + text->count, cut_mark, sizeof cut_mark - 1);
        text->count += sizeof cut_mark - 1;
    }
}

void text_char(struct text *text, char c) {
    text_bytes(text, &c, 1);
}

void text_string(struct text *text, const char *string) {
    text_bytes(text, string, strlen(string));
}

void text_escaped(struct text *text, const char *bytes, size_t count, size_t count_max) {
    size_t shown = count < count_max ? count : count_max;
    for (size_t i = 0; i < shown; i++) {
        unsigned char byte = (unsigned char)bytes[i];
        if (byte >= 0x20 && byte < 0x7f) {
            text_char(text, (char)byte);
        } else {
            const char escape[] = {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
            text_bytes(text, escape, sizeof escape);
        }
    }
    if (shown < count) {
        text_string(text, "...");
    }
}

static void text_number(struct text *text, uint64_t value, unsigned base) {
    char reversed[20];  // 2^64 has 20 decimal digits
    size_t start = sizeof reversed;
    do {
        reversed[--start] = digits[value % base];
        value /= base;
    } while (value != 0);
    text_bytes(text, reversed + start, sizeof reversed - start);
}

void text_unsigned(struct text *text, uint64_t value) {
    text_number(text, value, 10);
}

void text_hex(struct text *text, uint64_t value) {
    text_string(text, "0x");
    text_number(text, value, 16);
}

void text_pad(struct text *text, size_t column) {
    while (text->count < column && !text->cut) {
        text_char(text, ' ');
    }
}

void text_flush(struct text *text, int fd) {
    write_quietly(fd, text->bytes, text->count);
    text_clear(text);
}
