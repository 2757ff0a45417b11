#include "text.h"

#include <stdarg.h>
#include <stdio.h>

struct text text_in(char *buffer, size_t size) {
    buffer[0] = '\0';
    return (struct text){.start = buffer, .size = size};
}

void text_add(struct text *text, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const size_t left = text->size - text->used;
    const int length = vsnprintf(text->start + text->used, left, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= left) {
        text->cut = true;
        text->start[text->used] = '\0';
    } else {
        text->used += (size_t)length;
    }
}

void text_add_string(struct text *text, const char *string) {
    text_add(text, "\"");
    for (; *string != '\0'; string++) {
        const unsigned char c = (unsigned char)*string;
        const bool plain = c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
        text_add(text, plain ? "%c" : "\\u%04x", c);
    }
    text_add(text, "\"");
}
