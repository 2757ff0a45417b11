// Loads options in a child process, since they are loaded once per process, and tells what came of it.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "config/options.h"
#include "config/profile.h"

// What the child saw.
struct seen {
    struct options options;
    struct profile profile;
    char report[4096];
    uint8_t origins[OPTION_COUNT];
    bool set_result;
    int errno_after;
};

extern struct seen *seen;
// What it wrote to standard error.
extern char said[256 * 1024];
// A folder for files.
extern char directory[];

enum as {
    AS_SELF,
    AS_SECURE,
    AS_NOBODY,
};

typedef void child_action(void);

void load_then(char *const *envp, enum as as, child_action *action);

#define LOAD(...) load_then((char *[]){__VA_ARGS__ __VA_OPT__(, ) NULL}, AS_SELF, NULL)

void file_write(const char *path, const char *bytes, size_t count);

// Makes a profile file with this text and the variable that names it.
extern char profile_path[128];
char *profile(const char *text);

unsigned line_count(const char *text);

int loading_setup(void **state);
int loading_teardown(void **state);
