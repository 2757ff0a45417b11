/* hakmem: a malloc that is fast, lean and open to view. These are its extensions; malloc itself comes
 * from <stdlib.h> and <malloc.h>. All functions may be called from any thread. Not from a signal
 * handler, but for hakmem_snapshot_fd. Within libhakmem.so.0 no function goes and no struct changes. */
#ifndef HAKMEM_H
#define HAKMEM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version, as "major.minor.patch". A program that finds this symbol runs with hakmem loaded; that
 * its malloc is hakmem's as well, `hakmem run` proves. */
const char *hakmem_version(void);

/* Gives back to the system whatever the heap does not need: the calling thread's cache, the empty
 * slabs of all heaps, free pages, kept mappings. Returns the bytes. */
size_t hakmem_trim(void);

/* Checks every invariant of the heap, and returns the number of violations: 0 for a sound heap. Each of
 * the first 64 is a line on standard error that names the structure, the invariant and the values that
 * should have agreed. Other threads may keep running; their caches are not looked into. */
size_t hakmem_check(void);

/* Changes an option that may change at run time (docs/OPTIONS.md). Its name is in small letters without HAKMEM_,
 * as "purge_delay_ms", the value in the syntax of the environment. Returns 0, or -1 when the name is unknown, fixed at start-up, or the value invalid. */
int hakmem_option_set(const char *name, const char *value);

/* Writes a snapshot of the whole heap for `hakmem inspect` to a file descriptor that blocks: hakmem's own
 * structures and what the system says of the process's mappings, but none of the program's data. Other threads
 * may keep running; what they change meanwhile the reader tells as unsettled. May be called from a signal
 * handler; one that comes while it writes must not leave it by longjmp. Returns 0, or -1 with errno: EBUSY while another thread writes one, or where the handler interrupted the
 * first call of malloc that the process made, or why writing failed; the file then ends early. */
int hakmem_snapshot_fd(int fd);

/* The figures of malloc_stats as one JSON object, handed part by part to write(context, text, bytes): "counters",
 * "gauges" (both in docs/OPTIONS.md) and "size_classes". Returns 0, or what write returned, which ends it at once
 * when it is not 0. write may allocate. */
int hakmem_stats_json(int (*write)(void *context, const char *text, size_t bytes), void *context);

struct hakmem_totals {
    uint64_t live_bytes;     /* blocks the program holds, rounding included */
    uint64_t live_blocks;    /* their number */
    uint64_t cached_bytes;   /* free blocks in thread caches */
    uint64_t free_bytes;     /* free blocks in slabs */
    uint64_t dirty_bytes;    /* free pages not yet given back */
    uint64_t mapped_bytes;   /* address space of the heap */
    uint64_t metadata_bytes; /* hakmem's own structures */
};

#if defined __cplusplus && defined __GNUC__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow" /* the function hides the constructor of the structure */
#endif

/* Fills *totals. The numbers of threads that are running may lag by what is in their caches. */
void hakmem_totals(struct hakmem_totals *totals);

#if defined __cplusplus && defined __GNUC__
#pragma GCC diagnostic pop
#endif

#ifdef __cplusplus
}
#endif

#endif
