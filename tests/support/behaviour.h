// What the behaviour tests share: a check that ends the program with one line, the clock, memory
// figures from /proc, block contents that can be verified, and the proof of which allocator serves.
// Everything here is static and allocates nothing, so that a test sees its own allocations only.
#pragma once

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KIB ((size_t)1024)
#define MIB ((size_t)1024 * KIB)
#define GIB ((size_t)1024 * MIB)

#ifdef HAKMEM_INTERNAL
#include "hakmem.h"
#else
// Present when the program runs on hakmem, preloaded or linked; NULL on any other allocator.
#ifdef __cplusplus
extern "C" {
#endif
extern const char *hakmem_version(void) __attribute__((weak));
extern size_t hakmem_check(void) __attribute__((weak));
#ifdef __cplusplus
}
#endif
#endif

#define BEHAVIOUR_UNUSED __attribute__((unused))
#if !defined(__GLIBC__)
// musl's headers have neither; hakmem has both, the second under another name.
extern void *pvalloc(size_t bytes) __attribute__((weak));
extern size_t hakmem_trim(void) __attribute__((weak));
BEHAVIOUR_UNUSED static int malloc_trim(size_t pad) {
    return pad == 0 && hakmem_trim != NULL && hakmem_trim() != 0;
}
#endif
#ifdef __clang__
#define BEHAVIOUR_OPAQUE __attribute__((unused, noinline, optnone))
#else
#define BEHAVIOUR_OPAQUE __attribute__((unused, noipa))
#endif

// One line on stderr and exit status 1, without stdio: the program may be in a bad state.
BEHAVIOUR_UNUSED __attribute__((noreturn, format(printf, 3, 4))) static void
behaviour_fail(const char *file, int line, const char *format, ...) {
    char text[768];
    const char *name = strrchr(file, '/');
    int used = snprintf(text, sizeof text, "%s:%d: ", name != NULL ? name + 1 : file, line);
    va_list arguments;
    va_start(arguments, format);
    used += vsnprintf(text + used, sizeof text - (size_t)used - 2, format, arguments);
    va_end(arguments);
    if ((size_t)used > sizeof text - 2) {
        used = (int)sizeof text - 2;
    }
    text[used++] = '\n';
    ssize_t written = write(STDERR_FILENO, text, (size_t)used);
    (void)written;
    _exit(1);
}

#define require(condition)                                                                  \
    do {                                                                                    \
        if (!(condition)) {                                                                 \
            behaviour_fail(__FILE__, __LINE__, "not so: %s (errno %d)", #condition, errno); \
        }                                                                                   \
    } while (0)

#define require_that(condition, ...)                         \
    do {                                                     \
        if (!(condition)) {                                  \
            behaviour_fail(__FILE__, __LINE__, __VA_ARGS__); \
        }                                                    \
    } while (0)

// A progress line on stdout that needs no memory.
BEHAVIOUR_UNUSED __attribute__((format(printf, 1, 2))) static void behaviour_say(const char *format,
                                                                                 ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    int used = vsnprintf(text, sizeof text - 1, format, arguments);
    va_end(arguments);
    if ((size_t)used > sizeof text - 2) {
        used = (int)sizeof text - 2;
    }
    text[used++] = '\n';
    ssize_t written = write(STDOUT_FILENO, text, (size_t)used);
    (void)written;
}

// A number the compiler knows nothing about: keeps it from judging or removing impossible requests.
BEHAVIOUR_OPAQUE static size_t opaque(size_t value) {
    return value;
}

BEHAVIOUR_OPAQUE static void *opaque_pointer(void *value) {
    return value;
}

#ifndef HAKMEM_INTERNAL
// The test set-up says in BEHAVIOUR_ALLOCATOR who must serve ("hakmem" or "libc"); a test that runs
// on another allocator than it was meant for would prove nothing.
BEHAVIOUR_UNUSED static bool behaviour_on_hakmem(void) {
    return hakmem_version != NULL;
}

BEHAVIOUR_UNUSED static void behaviour_require_allocator(void) {
    const char *wanted = getenv("BEHAVIOUR_ALLOCATOR");
    if (wanted == NULL) {
        return;
    }
    if (strcmp(wanted, "hakmem") == 0) {
        require_that(behaviour_on_hakmem(), "this run was to be on hakmem, and it is not loaded");
#ifndef BEHAVIOUR_FULLY_STATIC
        Dl_info own;
        Dl_info served;
        require(dladdr((void *)(uintptr_t)hakmem_version, &own) != 0);
        require(dladdr((void *)(uintptr_t)malloc, &served) != 0);
        require_that(own.dli_fbase == served.dli_fbase, "malloc comes from %s, hakmem from %s",
                     served.dli_fname, own.dli_fname);
#endif
    } else {
        require_that(!behaviour_on_hakmem(), "this run was to be on %s, and hakmem is loaded",
                     wanted);
    }
}

#endif

// The heap's own invariants, where the allocator offers to check them.
BEHAVIOUR_UNUSED static void behaviour_require_sound_heap(void) {
#ifndef HAKMEM_INTERNAL
    if (hakmem_check == NULL) {
        return;
    }
#endif
    size_t violated = hakmem_check();
    require_that(violated == 0, "hakmem_check() found %zu violated invariants", violated);
}

BEHAVIOUR_UNUSED static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

BEHAVIOUR_UNUSED static void sleep_ms(unsigned int ms) {
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    while (nanosleep(&pause, &pause) != 0 && errno == EINTR) {
    }
}

// Value in bytes of a "Name:   123 kB" line of a /proc file.
BEHAVIOUR_UNUSED static size_t proc_kb_line(const char *path, const char *name) {
    static __thread char text[8192];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    require(fd >= 0);
    size_t used = 0;
    ssize_t got;
    while (used < sizeof text - 1 && (got = read(fd, text + used, sizeof text - 1 - used)) > 0) {
        used += (size_t)got;
    }
    close(fd);
    text[used] = '\0';
    char *line = strstr(text, name);
    require_that(line != NULL, "%s has no line %s", path, name);
    return (size_t)strtoull(line + strlen(name), NULL, 10) * KIB;
}

// Resident bytes of this process now, exact (not the kernel's per-processor estimate).
BEHAVIOUR_UNUSED static size_t rss_bytes(void) {
    return proc_kb_line("/proc/self/smaps_rollup", "\nRss:");
}

// Most resident bytes so far.
BEHAVIOUR_UNUSED static size_t rss_peak_bytes(void) {
    return proc_kb_line("/proc/self/status", "\nVmHWM:");
}

// A small generator of good quality (splitmix64); the state is the seed.
BEHAVIOUR_UNUSED static uint64_t behaviour_random(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

BEHAVIOUR_UNUSED static size_t random_below(uint64_t *state, size_t bound) {
    return (size_t)(behaviour_random(state) % bound);
}

// Where the random numbers of this run start: BEHAVIOUR_SEED from the environment, else 1. Printed, so
// that a run that failed can be had again.
BEHAVIOUR_UNUSED static uint64_t behaviour_seed(void) {
    const char *text = getenv("BEHAVIOUR_SEED");
    const uint64_t seed = text == NULL ? 1 : strtoull(text, NULL, 10);
    behaviour_say("BEHAVIOUR_SEED=%llu", (unsigned long long)seed);
    return seed;
}

// One stream of random numbers for each thread, or whatever the number counts.
BEHAVIOUR_UNUSED static uint64_t random_stream(uint64_t seed, uint64_t number) {
    uint64_t state = seed * 0x100000001b3u + number;
    behaviour_random(&state);
    return state;
}

// Sizes with equal weight per doubling, 1..max.
BEHAVIOUR_UNUSED static size_t random_log_size(uint64_t *state, size_t max) {
    unsigned int bits = 64 - (unsigned int)__builtin_clzll(max);
    unsigned int shift = (unsigned int)random_below(state, bits);
    size_t size = ((size_t)1 << shift) + random_below(state, (size_t)1 << shift);
    return size <= max ? size : max;
}

// Contents that depend on the place, so that bytes of another block, or moved bytes, do not match.
BEHAVIOUR_UNUSED static void pattern_fill(void *block, size_t bytes, uint64_t key) {
    unsigned char *to = (unsigned char *)block;
    uint64_t word = key * 0x9e3779b97f4a7c15u | 1;
    size_t at = 0;
    for (; at + 8 <= bytes; at += 8) {
        uint64_t value = word + at * 0x0101010101010101u;
        memcpy(to + at, &value, 8);
    }
    for (uint64_t value = word + at * 0x0101010101010101u; at < bytes; at++) {
        to[at] = (unsigned char)(value >> (8 * (at & 7)));
    }
}

// Offset of the first byte that differs, or `bytes` when all match. Any prefix of what
// pattern_fill() wrote matches too.
BEHAVIOUR_UNUSED static size_t pattern_differs(const void *block, size_t bytes, uint64_t key) {
    const unsigned char *from = (const unsigned char *)block;
    uint64_t word = key * 0x9e3779b97f4a7c15u | 1;
    size_t at = 0;
    for (; at + 8 <= bytes; at += 8) {
        uint64_t value = word + at * 0x0101010101010101u;
        uint64_t found;
        memcpy(&found, from + at, 8);
        if (found != value) {
            return at;
        }
    }
    for (uint64_t value = word + at * 0x0101010101010101u; at < bytes; at++) {
        if (from[at] != (unsigned char)(value >> (8 * (at & 7)))) {
            return at;
        }
    }
    return bytes;
}

BEHAVIOUR_UNUSED static bool all_zero(const void *block, size_t bytes) {
    const unsigned char *from = (const unsigned char *)block;
    size_t at = 0;
    for (; at + 8 <= bytes; at += 8) {
        uint64_t found;
        memcpy(&found, from + at, 8);
        if (found != 0) {
            return false;
        }
    }
    for (; at < bytes; at++) {
        if (from[at] != 0) {
            return false;
        }
    }
    return true;
}

BEHAVIOUR_UNUSED static bool aligned_to(const void *block, size_t alignment) {
    return ((uintptr_t)block & (alignment - 1)) == 0;
}

#ifndef HAKMEM_INTERNAL
// Hardened mode keeps the last freed blocks of each thread from reuse, and their slabs with them.
BEHAVIOUR_UNUSED static bool in_hardened_mode(void) {
    const char *mode = getenv("HAKMEM_MODE");
    return behaviour_on_hakmem() && mode != NULL && strcmp(mode, "hardened") == 0;
}

// What repeated work may add to the resident size of a trimmed heap: nothing but noise.
BEHAVIOUR_UNUSED static size_t lost_bytes_max(void) {
    return in_hardened_mode() ? 4 * MIB : 1 * MIB;
}
#endif

// Memory of the test itself, never from the allocator under test.
BEHAVIOUR_UNUSED static void *test_memory(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    require(memory != MAP_FAILED);
    return memory;
}

BEHAVIOUR_UNUSED static void start_thread(pthread_t *thread, size_t stack_bytes,
                                          void *(*body)(void *), void *argument) {
    pthread_attr_t attributes;
    require(pthread_attr_init(&attributes) == 0);
    if (stack_bytes != 0) {
        require(pthread_attr_setstacksize(&attributes, stack_bytes) == 0);
    }
    int error = pthread_create(thread, &attributes, body, argument);
    require_that(error == 0, "pthread_create: error %d", error);
    require(pthread_attr_destroy(&attributes) == 0);
}
