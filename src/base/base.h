// The words every other file uses: integer types, units, branch hints and linkage marks.
// Depends on the compiler's own headers only.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KIB ((size_t)1024)
#define MIB ((size_t)1024 * KIB)
#define GIB ((size_t)1024 * MIB)

#define likely(condition) __builtin_expect(!!(condition), 1)
#define unlikely(condition) __builtin_expect(!!(condition), 0)

// FAST_PATH: part of every malloc or free, kept in line. MIDDLE_PATH: once per few dozen
// operations, or for each free to another thread: out of line, without a lock or a system call.
// SLOW_PATH: everything else, out of the way of both.
#define FAST_PATH static inline __attribute__((always_inline))
#define MIDDLE_PATH __attribute__((noinline))
#define SLOW_PATH __attribute__((noinline, cold))
#define EXPORTED __attribute__((visibility("default")))
// An object of another file of the library: -fvisibility=hidden is for those that are defined, so that code would ask a table for the
// address of this one.
#define HIDDEN __attribute__((visibility("hidden")))
// The entry points that hold a fast path: each in as few cache lines as it can be.
#define EXPORTED_FAST EXPORTED __attribute__((aligned(CACHE_LINE_BYTES)))

// A second, hidden name for a static object: control/inspect.c tells readers outside of the process where
// it is. Besides, only checks, snapshots and fork use it.
#define INSPECTABLE(object, name) extern __typeof__(object)(name) __attribute__((alias(#object)))

#define CACHE_LINE_BYTES 64
#define ARRAY_COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define CONTAINER_OF(pointer, type, member) \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))
