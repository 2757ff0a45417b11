// A second library that replaces malloc, as profilers do: it counts and passes on to the next one. And one that stands before the
// system calls, as uid_wrapper does, and allocates there.
#include <dlfcn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

unsigned long hook_calls(void);

static unsigned long calls;
static void *(*next_malloc)(size_t);
static void (*next_free)(void *);
static void *(*next_realloc)(void *, size_t);

// The loader may call these before the constructor ran: look up at first use.
static void *look_up(const char *name) {
    return dlsym(RTLD_NEXT, name);
}

void *malloc(size_t bytes) {
    if (next_malloc == NULL) {
        next_malloc = (void *(*)(size_t))(uintptr_t)look_up("malloc");
    }
    __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
    return next_malloc(bytes);
}

void free(void *block) {
    if (next_free == NULL) {
        next_free = (void (*)(void *))(uintptr_t)look_up("free");
    }
    __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
    next_free(block);
}

void *realloc(void *block, size_t bytes) {
    if (next_realloc == NULL) {
        next_realloc = (void *(*)(void *, size_t))(uintptr_t)look_up("realloc");
    }
    __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
    return next_realloc(block, bytes);
}

// Whoever calls it with a lock that malloc wants waits for itself.
long syscall(long number, ...) {
    static long (*next_syscall)(long, ...);
    if (next_syscall == NULL) {
        next_syscall = (long (*)(long, ...))(uintptr_t)look_up("syscall");
    }
    free(malloc(100));
    va_list rest;
    va_start(rest, number);
    long words[6];
    for (int i = 0; i < 6; i++) {
        words[i] = va_arg(rest, long);
    }
    va_end(rest);
    return next_syscall(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

unsigned long hook_calls(void) {
    return calls;
}
