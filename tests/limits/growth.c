// A buffer that grows by realloc under RLIMIT_AS or RLIMIT_DATA comes to nearly all that is allowed, wherever its neighbours lie:
// there is no room for a second one beside it. Nor is what was freed in the way.
#include "load.h"

#include <sys/resource.h>

enum { STEP_MIB = 16, LARGE_COUNT = 200 };

static const size_t limit = 1024 * MIB;

static void check(const char *buffer, size_t bytes) {
    for (size_t at = 0; at < bytes; at += STEP_MIB * MIB) {
        require(buffer[at] == (char)(at / MIB) && buffer[at + STEP_MIB * MIB - 1] == 1);
    }
}

// Returns the bytes that it came to.
static size_t grow(char **buffer, size_t bytes, size_t step) {
    for (;;) {
        char *longer = (char *)realloc(*buffer, bytes + step);
        if (longer == NULL) {
            require(errno == ENOMEM);
            return bytes;
        }
        *buffer = longer;
        for (size_t end = bytes + step; bytes < end; bytes += STEP_MIB * MIB) {
            longer[bytes] = (char)(bytes / MIB);
            longer[bytes + STEP_MIB * MIB - 1] = 1;
        }
    }
}

static void by_steps(void) {
    char *buffer = NULL;
    const size_t bytes = grow(&buffer, 0, STEP_MIB * MIB);
    behaviour_say("by steps to %zu MiB", bytes / MIB);
    require(bytes > limit / 10 * 9);
    check(buffer, bytes);
    free(buffer);
}

static void at_once(void) {
    static char *large[LARGE_COUNT];
    char *buffer = (char *)malloc(640 * MIB);
    require(buffer != NULL);
    memset(buffer, 7, 640 * MIB);
    // What was freed lies in free runs and kept mappings.
    for (int i = 0; i < LARGE_COUNT; i++) {
        require((large[i] = (char *)malloc(MIB)) != NULL);
        memset(large[i], 1, MIB);
    }
    for (int i = 0; i < LARGE_COUNT; i++) {
        free(large[i]);
    }
    large[0] = (char *)malloc(60 * MIB);
    require(large[0] != NULL);
    memset(large[0], 1, 60 * MIB);
    free(large[0]);
    char *longer = (char *)realloc(buffer, 980 * MIB);
    require(longer != NULL);
    require(longer[0] == 7 && longer[640 * MIB - 1] == 7);
    memset(longer, 1, 980 * MIB);
    free(longer);
}

int main(int count, char **values) {
    behaviour_require_allocator();
    require_that(count == 3, "usage: growth as|data steps|once");
    if (getenv("LIMIT_IS_SET") == NULL) {
        struct rlimit soft = {limit, RLIM_INFINITY};
        require(setenv("LIMIT_IS_SET", "1", 1) == 0);
        require(setrlimit(strcmp(values[1], "as") == 0 ? RLIMIT_AS : RLIMIT_DATA, &soft) == 0);
        execv("/proc/self/exe", values);
        require_that(false, "exec: errno %d", errno);
    }
    if (strcmp(values[2], "steps") == 0) {
        by_steps();
    } else {
        at_once();
    }
    behaviour_require_sound_heap();
    return 0;
}
