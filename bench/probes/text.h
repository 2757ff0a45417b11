/* Text built in a buffer of the caller, for programs that must not allocate: a preloaded witness
 * runs inside a process whose malloc is what is being measured. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct text {
    char *start;
    size_t used, size; /* bytes; the text is always terminated */
    bool cut;          /* something did not fit: the text is not to be used */
};

struct text text_in(char *buffer, size_t size);

__attribute__((format(printf, 2, 3))) void text_add(struct text *text, const char *format, ...);

/* A JSON string, quotes included. */
void text_add_string(struct text *text, const char *string);
