// A handful of mistakes, each in a child: the child ends by SIGABRT, and the first line it writes to
// standard error names the mistake and the pointer. What every kind draws in full: tests for the
// machine that builds.
#include "behaviour.h"

#include <signal.h>

#ifdef __aarch64__
#define ADDRESS_BITS 48
#else
#define ADDRESS_BITS 47
#endif

struct mistake {
    const char *name, *line;
    void *(*make)(void);  // returns the pointer, before it commits the mistake with it
    void (*commit)(void *pointer);
};

static void commit_free(void *pointer) {
    free(opaque_pointer(pointer));
}

static void commit_realloc(void *pointer) {
    void *moved = realloc(opaque_pointer(pointer), 50);
    require(moved == NULL);
}

static void commit_usable_size(void *pointer) {
    require(malloc_usable_size(opaque_pointer(pointer)) == 0);
}

static void *commit_in_thread_body(void *pointer) {
    commit_free(pointer);
    return NULL;
}

static void commit_in_thread(void *pointer) {
    pthread_t thread;
    start_thread(&thread, 0, commit_in_thread_body, pointer);
    pthread_join(thread, NULL);
}

static void *freed(size_t bytes) {
    void *block = malloc(bytes);
    free(block);
    return block;
}

static void *freed_small(void) {
    return freed(100);
}

static void *freed_large(void) {
    return freed(100000);
}

static void *freed_huge(void) {
    return freed(5 * MIB);
}

static void *inside_small(void) {
    return (char *)malloc(100) + 16;
}

static void *inside_large(void) {
    return (char *)malloc(100000) + 64 * KIB;
}

static void *inside_huge(void) {
    return (char *)malloc(5 * MIB) + MIB;
}

static void *on_stack(void) {
    static __thread char *kept;
    char local;
    kept = opaque_pointer(&local);
    return (void *)((uintptr_t)kept & ~(uintptr_t)15);
}

static void *of_nobody(void) {
    return (void *)16;
}

static void *of_a_mapping(void) {
    return test_memory(MIB);
}

// The processor of a port may ignore the top byte of an address.
static void *tagged(void) {
    return (void *)((uintptr_t)malloc(100) | (uintptr_t)0xa5 << 56);
}

static void *above(void) {
    return (void *)((uintptr_t)1 << ADDRESS_BITS);
}

static void *at_the_end(void) {
    return (void *)(((uintptr_t)1 << ADDRESS_BITS) - 64);
}

static const struct mistake mistakes[] = {
    {"free twice, small", "double free", freed_small, commit_free},
    {"free twice, large", "double free", freed_large, commit_free},
    {"free twice, huge", "", freed_huge, commit_free},
    {"free twice, small, in another thread", "double free", freed_small, commit_in_thread},
    {"free inside a small block", "invalid free", inside_small, commit_free},
    {"free inside a large block", "invalid free", inside_large, commit_free},
    {"free inside a huge block", "invalid free", inside_huge, commit_free},
    {"free of the stack", "invalid free", on_stack, commit_free},
    {"free of a small integer", "invalid free", of_nobody, commit_free},
    {"free of somebody's mapping", "invalid free", of_a_mapping, commit_free},
    {"free of a tagged pointer", "invalid free", tagged, commit_free},
    {"free above the address space", "invalid free", above, commit_free},
    {"free at the end of the address space", "invalid free", at_the_end, commit_free},
    {"realloc of a tagged pointer", "invalid realloc", tagged, commit_realloc},
    {"realloc of freed memory", "realloc of a freed block", freed_small, commit_realloc},
    {"size of a tagged pointer", "invalid malloc_usable_size", tagged, commit_usable_size},
};

// What a child wrote to standard error, and how it ended.
static int run(const struct mistake *mistake, char *said, size_t capacity) {
    int ends[2];
    require(pipe(ends) == 0);
    const pid_t child = fork();
    require(child >= 0);
    if (child == 0) {
        require(dup2(ends[1], STDERR_FILENO) >= 0);
        void *pointer = NULL;
        if (mistake != NULL) {
            pointer = mistake->make();
            char line[40];
            const int length = snprintf(line, sizeof line, "%p\n", pointer);
            require(write(STDERR_FILENO, line, (size_t)length) == length);
            mistake->commit(pointer);
        }
        // The latest that a mistake may be noticed.
        exit(0);
    }
    close(ends[1]);
    size_t used = 0;
    ssize_t got;
    while ((got = read(ends[0], said + used, capacity - 1 - used)) > 0) {
        used += (size_t)got;
    }
    said[used] = '\0';
    close(ends[0]);
    int status;
    require(waitpid(child, &status, 0) == child);
    return status;
}

static void check(const struct mistake *mistake) {
    char said[4096];
    const int status = run(mistake, said, sizeof said);
    char *report = strchr(said, '\n');
    require_that(report != NULL, "%s: said '%s'", mistake->name, said);
    *report++ = '\0';
    char wanted[128];
    snprintf(wanted, sizeof wanted, "hakmem: %s", mistake->line);
    require_that(strncmp(report, wanted, strlen(wanted)) == 0, "%s: said '%s'", mistake->name,
                 report);
    require_that(strstr(report, said) != NULL, "%s: '%s' does not name %s", mistake->name, report,
                 said);
    require_that(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "%s: ended with status %#x",
                 mistake->name, (unsigned)status);
}

int main(void) {
    behaviour_require_allocator();
    // The control: no mistake, no message.
    char said[4096];
    require(run(NULL, said, sizeof said) == 0);
    require_that(said[0] == '\0', "without a mistake, said '%s'", said);
    const size_t count = sizeof mistakes / sizeof mistakes[0];
    for (size_t i = 0; i < count; i++) {
        check(&mistakes[i]);
    }
    behaviour_say("%zu mistakes noticed", count);
    return 0;
}
