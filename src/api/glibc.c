// What only glibc has of malloc's family: built where the C library is glibc.
#include <errno.h>
#include <malloc.h>
#include <stdio.h>

#include "base/bits.h"
#include "control/stats.h"
#include "thread/maintenance.h"

// Aliases below carry no promises to the optimiser, unlike libc's declarations of their targets.
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmissing-attributes"
#endif

#define SECOND_NAME(name) __attribute__((alias(#name), visibility("default")))

static struct mallinfo2 info_of(const struct stats *stats) {
    const uint64_t *gauge = stats->gauge;
    struct mallinfo2 info = {0};
    info.hblks = gauge[GAUGE_huge_blocks];
    info.hblkhd = gauge[GAUGE_huge_bytes];
    info.uordblks = gauge[GAUGE_live_bytes] - gauge[GAUGE_huge_bytes];
    // Between the two counts other threads may have given memory back.
    info.arena = greatest_u64(gauge[GAUGE_mapped_bytes] - gauge[GAUGE_huge_bytes], info.uordblks);
    info.fordblks = info.arena - info.uordblks;
    info.fsmblks = gauge[GAUGE_cached_bytes];
    info.keepcost = gauge[GAUGE_dirty_bytes];
    for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        info.ordblks += stats->class[i].free_blocks;
        info.smblks += stats->class[i].cached_blocks;
    }
    return info;
}

EXPORTED struct mallinfo2 mallinfo2(void) {
    struct stats stats;
    stats_collect(&stats);
    return info_of(&stats);
}

static int capped(size_t value) {
    return value > INT32_MAX ? INT32_MAX : (int)value;
}

// Deprecated for its fields of 32 bits; they stop at the highest value instead of wrapping.
EXPORTED struct mallinfo mallinfo(void) {
    const struct mallinfo2 wide = mallinfo2();
    return (struct mallinfo){
        .arena = capped(wide.arena),
        .ordblks = capped(wide.ordblks),
        .smblks = capped(wide.smblks),
        .hblks = capped(wide.hblks),
        .hblkhd = capped(wide.hblkhd),
        .fsmblks = capped(wide.fsmblks),
        .uordblks = capped(wide.uordblks),
        .fordblks = capped(wide.fordblks),
        .keepcost = capped(wide.keepcost),
    };
}

// What readers of glibc's malloc_info look for in a heap, and once more behind all heaps, which are one here. As there, what is mapped
// now is without huge blocks in use, which are counted apart; the highest is with them.
static void print_totals(FILE *stream, const struct stats *stats, const struct mallinfo2 *info) {
    const size_t bytes = info->arena;
    fprintf(stream, "<total type=\"fast\" count=\"%zu\" size=\"%zu\"/>\n", info->smblks,
            info->fsmblks);
    fprintf(stream, "<total type=\"rest\" count=\"%zu\" size=\"%zu\"/>\n", info->ordblks,
            (size_t)stats->gauge[GAUGE_slab_free_bytes]);
    fprintf(stream, "<system type=\"current\" size=\"%zu\"/>\n", bytes);
    fprintf(stream, "<system type=\"max\" size=\"%zu\"/>\n",
            (size_t)stats->gauge[GAUGE_mapped_bytes_max]);
    fprintf(stream, "<aspace type=\"total\" size=\"%zu\"/>\n", bytes);
    fprintf(stream, "<aspace type=\"mprotect\" size=\"%zu\"/>\n", bytes);
}

EXPORTED int malloc_info(int flags, FILE *stream) {
    if (flags != 0) {
        return EINVAL;
    }
    struct stats stats;
    stats_collect(&stats);
    fprintf(stream, "<malloc version=\"1\" allocator=\"hakmem\">\n<heap nr=\"0\">\n<sizes>\n");
    for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        const struct stats_class *class = &stats.class[i];
        if (class->slab_bytes != 0) {
            fprintf(stream,
                    "  <size block=\"%zu\" slab_bytes=\"%zu\" live=\"%zu\" cached=\"%zu\" "
                    "free=\"%zu\"/>\n",
                    (size_t) class->block_bytes, (size_t) class->slab_bytes,
                    (size_t) class->live_blocks, (size_t) class->cached_blocks,
                    (size_t) class->free_blocks);
        }
    }
    fprintf(stream, "</sizes>\n");
    const struct mallinfo2 info = info_of(&stats);
    print_totals(stream, &stats, &info);
    fprintf(stream, "</heap>\n");
    print_totals(stream, &stats, &info);
    fprintf(stream, "<total type=\"mmap\" count=\"%zu\" size=\"%zu\"/>\n", info.hblks, info.hblkhd);
    // hakmem's own.
#define COUNTER(name, unit, help)                                                      \
    fprintf(stream, "<counter name=\"" #name "\" unit=\"" unit "\" value=\"%zu\"/>\n", \
            (size_t)stats.counter[COUNTER_##name]);
#define GAUGE(name, unit, help)                                                      \
    fprintf(stream, "<gauge name=\"" #name "\" unit=\"" unit "\" value=\"%zu\"/>\n", \
            (size_t)stats.gauge[GAUGE_##name]);
#include "config/counters.def"
    fprintf(stream, "</malloc>\n");
    return 0;
}

EXPORTED void malloc_stats(void) {
    stats_print(2);
}

EXPORTED int malloc_trim(size_t pad) {
    (void)pad;
    return maintenance_reclaim() != 0;
}

// glibc's parameters describe glibc's heap. They are accepted, as there, so that programs that set
// them run as before, and have no effect.
EXPORTED int mallopt(int parameter, int value) {
    // The one value glibc refuses: a fast bin above its limit of 80 * sizeof(size_t) / 4 bytes.
    return parameter != M_MXFAST || (value >= 0 && (size_t)value <= 80 * sizeof(size_t) / 4);
}

// ---- The second names of these, and what else glibc's malloc object holds ----

int __libc_mallopt(int parameter, int value) SECOND_NAME(mallopt);
struct mallinfo __libc_mallinfo(void) SECOND_NAME(mallinfo);
struct mallinfo2 __libc_mallinfo2(void) SECOND_NAME(mallinfo2);
struct mallinfo __mallinfo(void) SECOND_NAME(mallinfo);
struct mallinfo2 __mallinfo2(void) SECOND_NAME(mallinfo2);
int __mallopt(int parameter, int value) SECOND_NAME(mallopt);
int __malloc_info(int flags, FILE *stream) SECOND_NAME(malloc_info);
void __malloc_stats(void) SECOND_NAME(malloc_stats);
int __malloc_trim(size_t pad) SECOND_NAME(malloc_trim);

// fork and thread exit of the static C library call these; hakmem has handlers of its own.
static void nothing(void) {
}
void __malloc_arena_thread_freeres(void) SECOND_NAME(nothing);
void __malloc_fork_lock_parent(void) SECOND_NAME(nothing);
void __malloc_fork_unlock_parent(void) SECOND_NAME(nothing);
void __malloc_fork_unlock_child(void) SECOND_NAME(nothing);

// Of malloc implementations that extend the data segment: there is nothing to extend.
EXPORTED void *__glibc_morecore(ptrdiff_t increment);
EXPORTED void *__glibc_morecore(ptrdiff_t increment) {
    (void)increment;
    return NULL;
}
