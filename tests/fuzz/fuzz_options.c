// The environment: each line of the input is one variable.
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "load_check.h"

enum { VARIABLES_MAX = 64, NAME_BYTES_MAX = 64 };

static void expect_variable(const char *variable) {
    static const char prefix[] = "HAKMEM_";
    const char *equals = strchr(variable, '=');
    if (equals == NULL || strncmp(variable, prefix, sizeof prefix - 1) != 0) {
        return;
    }
    const char *name = variable + sizeof prefix - 1;
    const size_t count = (size_t)(equals - name);
    char lower[NAME_BYTES_MAX];
    if (equals < name || count >= sizeof lower) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (islower((unsigned char)name[i])) {
            return;
        }
        lower[i] = (char)tolower((unsigned char)name[i]);
    }
    expect_setting(lower, count, equals + 1, strlen(equals + 1));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
    // Exactly as long as it is, so that a byte too far is noticed.
    char *text = malloc(count + 1);
    fuzz_require(text != NULL);
    memcpy(text, bytes, count);
    text[count] = '\0';
    char *envp[VARIABLES_MAX + 1];
    size_t variables = 0;
    for (char *line = text; line < text + count && variables < VARIABLES_MAX;) {
        char *end = memchr(line, '\n', (size_t)(text + count - line));
        end = end == NULL ? text + count : end;
        *end = '\0';
        // No file of this machine is to be read.
        if (strncmp(line, "HAKMEM_PROFILE=", 15) != 0) {
            envp[variables++] = line;
            expect_variable(line);
        }
        line = end + 1;
    }
    envp[variables] = NULL;
    load_checked(envp);
    expectations_check(OPTION_ORIGIN_ENVIRONMENT);
    free(text);
    return 0;
}
