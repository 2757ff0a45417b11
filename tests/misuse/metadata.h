// Addresses of the allocator's own data.
#pragma once

#include "misuse.h"

enum { PROBES = 2000 };

// Whether a block, or this stack, lies between two addresses.
static bool holds_block(char **probes, const char *start, const char *end) {
    const char *here = (const char *)&probes;
    bool holds = here >= start && here < end;
    for (int i = 0; i < PROBES; i++) {
        holds = holds || (probes[i] >= start && probes[i] < end);
    }
    return holds;
}

// Calls found() with the mappings of the process until it returns an address.
static void *search_mappings(void *(*found)(char *start, char *end, const char *text)) {
    static char maps[256 * 1024];
    int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    require(file >= 0);
    size_t used = 0;
    ssize_t got;
    while (used < sizeof maps - 1 && (got = read(file, maps + used, sizeof maps - 1 - used)) > 0) {
        used += (size_t)got;
    }
    close(file);
    for (char *line = maps; line != NULL && *line != '\0';
         line = strchr(line, '\n'), line += line != NULL) {
        char *rest;
        char *start = (char *)strtoul(line, &rest, 16);
        char *end = (char *)strtoul(rest + 1, &rest, 16);
        char *newline = strchr(rest, '\n');
        if (newline != NULL) {
            *newline = '\0';
        }
        void *address = found(start, end, rest);
        if (newline != NULL) {
            *newline = '\n';
        }
        if (address != NULL) {
            return address;
        }
    }
    return NULL;
}

static char *probes[PROBES];

static void *anonymous_without_block(char *start, char *end, const char *text) {
    const bool anonymous = strncmp(text, " rw-p", 5) == 0 && strstr(text, " 0 ") != NULL &&
                           strchr(text, '/') == NULL && strchr(text, '[') == NULL;
    return anonymous && end - start >= 64 * 1024 && !holds_block(probes, start, end) ? start + 4096
                                                                                     : NULL;
}

// In a private anonymous mapping where none of many blocks of many sizes lies.
BEHAVIOUR_UNUSED static void *metadata_address(void) {
    for (int i = 0; i < PROBES; i++) {
        probes[i] = (char *)malloc((size_t)16 << (i % 15));
        require(probes[i] != NULL);
    }
    void *address = search_mappings(anonymous_without_block);
    if (address == NULL) {
        misuse_end(END_ABSENT, "no mapping without blocks");
    }
    return address;
}

static void *written_by_library(char *start, char *end, const char *text) {
    Dl_info served;
    require(dladdr((void *)(uintptr_t)malloc, &served) != 0);
    (void)end;
    return strncmp(text, " rw-p", 5) == 0 && strstr(text, served.dli_fname) != NULL ? start + 64
                                                                                    : NULL;
}

BEHAVIOUR_UNUSED static void *library_data_address(void) {
    void *address = search_mappings(written_by_library);
    if (address == NULL) {
        misuse_end(END_ABSENT, "the library has no data");
    }
    return address;
}
