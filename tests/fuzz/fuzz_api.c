// Sequences of calls, on the simulated machine: each input is a program for the allocator. Every block
// is checked as in tests/model (alignment, contents, usable size, no overlap); system calls fail on
// command, and time passes by hand. At the end everything is freed, and the heap must be sound.
//
//   op   what                                  then
//   0-3  malloc, calloc, memalign, realloc     slot, size (2 bytes), alignment
//   4-6  free, free_sized, usable size         slot
//   7    the same request for several slots    slot, count, size
//   8    every second of several slots freed   slot, count
//   9    another thread does 7 and 8           slot, count, size
//   10   the next system call of a kind fails  kind, how many calls later
//   11   time passes                           a number of 50 ms
//   12   trim
//   13   an option changes                     option, value
//   14   all invariants are checked
#include <pthread.h>
#include <string.h>

#include "api/alloc.h"
#include "config/options.h"
#include "contents.h"
#include "control/check.h"
#include "control/stats.h"
#include "fake_os.h"
#include "fuzz.h"
#include "reference.h"
#include "thread/cache.h"
#include "thread/lifecycle.h"
#include "thread/maintenance.h"

enum { SLOT_COUNT = 256, OP_COUNT = 15, OPS_MAX = 4000 };
#define LIVE_BYTES_MAX (24 * MIB)

static struct slot {
    struct block block;
    size_t alignment;
} slots[SLOT_COUNT];
static size_t live_bytes;

struct program {
    const uint8_t *next, *end;
};

static unsigned take(struct program *program) {
    return program->next < program->end ? *program->next++ : 0;
}

// 0 to 8 MiB: any doubling as likely as any other up to 16 KiB, which costs little, and a quarter above.
static size_t take_size(struct program *program) {
    const unsigned choice = take(program);
    const unsigned shift = choice < 192 ? choice % 14 : 14 + choice % 10;
    const size_t part = take(program);
    const size_t bytes = ((size_t)1 << shift) + ((part << shift) >> 8);
    return part == 0 ? bytes - 1 : bytes;
}

static size_t take_alignment(struct program *program) {
    return (size_t)1 << take(program) % 23;
}

// NULL is an answer when a system call was refused just now.
static bool is_refused(const void *block, uint64_t struck_before) {
    if (block != NULL) {
        return false;
    }
    fuzz_require(errno == ENOMEM);
    fuzz_require(fake_os_struck() != struck_before);
    return true;
}

static void adopt(struct slot *slot, void *start, size_t bytes, size_t alignment) {
    const size_t usable = hakmem_block_bytes(start);
    fuzz_require((uintptr_t)start % (alignment > 16 ? alignment : 16) == 0);
    fuzz_require(usable >= bytes);
    uintptr_t other;
    size_t other_bytes;
    if (!reference_add((uintptr_t)start, usable, &other, &other_bytes)) {
        fuzz_fail("%zu bytes at %p overlap the live block at %#zx of %zu bytes", bytes, start,
                  other, other_bytes);
    }
    slot->block = (struct block){start, bytes, usable, (uintptr_t)start ^ bytes};
    slot->alignment = alignment;
    live_bytes += usable;
    contents_fill(&slot->block);
}

static void check(const struct slot *slot) {
    fuzz_require(hakmem_block_bytes(slot->block.start) == slot->block.usable);
    const size_t wrong = contents_wrong(&slot->block);
    if (wrong != SIZE_MAX) {
        fuzz_fail("the block of %zu bytes at %p changed at byte %zu", slot->block.bytes,
                  (void *)slot->block.start, wrong);
    }
}

static void disown(struct slot *slot) {
    fuzz_require(reference_remove((uintptr_t)slot->block.start));
    live_bytes -= slot->block.usable;
}

static void release(struct slot *slot, bool sized) {
    if (slot->block.start == NULL) {
        return;
    }
    check(slot);
    disown(slot);
    errno = 77;
    if (sized) {
        dealloc_sized(slot->block.start, slot->alignment, slot->block.bytes);
    } else {
        hakmem_dealloc(slot->block.start);
    }
    fuzz_require(errno == 77);
    slot->block.start = NULL;
}

static void allocate(struct slot *slot, unsigned way, size_t bytes, size_t alignment) {
    if (slot->block.start != NULL || live_bytes + bytes > LIVE_BYTES_MAX) {
        return;
    }
    const uint64_t struck = fake_os_struck();
    errno = 0;
    unsigned char *start;
    if (way == 1) {
        start = hakmem_alloc_zeroed(bytes);
    } else if (way == 2) {
        start = hakmem_alloc_aligned(alignment, bytes);
    } else {
        start = hakmem_alloc(bytes);
    }
    if (!is_refused(start, struck)) {
        if (way == 1 && !all_zero(start, bytes)) {
            fuzz_fail("calloc of %zu bytes at %p is not zero", bytes, (void *)start);
        }
        adopt(slot, start, bytes, way == 2 ? alignment : 16);
    }
}

static void resize(struct slot *slot, size_t bytes) {
    if (slot->block.start == NULL) {
        allocate(slot, 0, bytes, 16);
        return;
    }
    if (bytes == 0 || live_bytes + bytes > LIVE_BYTES_MAX) {
        return;
    }
    check(slot);
    disown(slot);
    struct block old = slot->block;
    const uint64_t struck = fake_os_struck();
    errno = 0;
    void *start = hakmem_resize(old.start, bytes);
    if (is_refused(start, struck)) {
        const size_t alignment = slot->alignment;
        check(slot);
        adopt(slot, old.start, old.bytes, alignment);
        return;
    }
    old.start = start;
    const size_t wrong = contents_kept_wrong(&old, bytes);
    if (wrong != SIZE_MAX) {
        fuzz_fail("realloc from %zu to %zu bytes lost byte %zu", old.bytes, bytes, wrong);
    }
    adopt(slot, start, bytes, 16);
}

// What op 9 asks for.
struct order {
    unsigned slot, count;
    size_t bytes;
};

static struct slot *slot_at(unsigned number) {
    return &slots[number % SLOT_COUNT];
}

static void allocate_several(const struct order *order) {
    for (unsigned i = 0; i < order->count; i++) {
        allocate(slot_at(order->slot + i), 0, order->bytes, 16);
    }
}

static void release_several(const struct order *order) {
    for (unsigned i = 0; i < order->count; i += 2) {
        release(slot_at(order->slot + i), false);
    }
}

static void *work_elsewhere(void *argument) {
    release_several(argument);
    allocate_several(argument);
    return NULL;
}

static void hand_over(struct order *order) {
    pthread_t thread;
    fuzz_require(pthread_create(&thread, NULL, work_elsewhere, order) == 0);
    fuzz_require(pthread_join(thread, NULL) == 0);
}

static void pass_time(unsigned steps) {
    fake_os_pass_ms(50 * steps);
    if (cache_is_real(thread_cache)) {
        thread_cache->pace_ticks = 0;
    }
}

static const char *const changed_options[] = {
    "purge_delay_ms",    "slab_purge_delay_ms", "retain_slabs",      "huge_cache_bytes",
    "cache_class_bytes", "cache_heap_bytes",    "decay_interval_ms", "refill_blocks",
};
enum { CHANGED_COUNT = sizeof changed_options / sizeof changed_options[0] };
static char first_values[CHANGED_COUNT][32];

static void change_option(unsigned option, unsigned value) {
    static const char *const values[] = {"0", "1", "7", "63", "500", "4096", "65536", "1048576"};
    // A value out of the option's bounds is refused, and nothing changes.
    (void)options_set(changed_options[option % CHANGED_COUNT], values[value % 8]);
}

static void note_options(void) {
    for (unsigned i = 0; i < CHANGED_COUNT; i++) {
        struct text text;
        text_clear(&text);
        fuzz_require(options_get(changed_options[i], &text));
        fuzz_require(text.count < sizeof first_values[i]);
        memcpy(first_values[i], text.bytes, text.count);
    }
}

static void carry_out(struct program *program) {
    const unsigned op = take(program) % OP_COUNT;
    const unsigned place = op == 12 || op == 14 ? 0 : take(program);
    struct slot *slot = slot_at(place);
    struct order order = {place, 0, 0};
    switch (op) {
    case 0:
    case 1:
        allocate(slot, op, take_size(program), 16);
        break;
    case 2: {
        const size_t bytes = take_size(program);
        allocate(slot, op, bytes, take_alignment(program));
        break;
    }
    case 3:
        resize(slot, take_size(program));
        break;
    case 4:
    case 5:
        release(slot, op == 5);
        break;
    case 6:
        if (slot->block.start != NULL) {
            check(slot);
        }
        break;
    case 7:
    case 8:
    case 9:
        order.count = take(program);
        if (op == 8) {
            release_several(&order);
            break;
        }
        order.bytes = take_size(program);
        if (op == 7) {
            allocate_several(&order);
        } else {
            hand_over(&order);
        }
        break;
    case 10:
        fake_os_fail((enum os_call)(place % OS_FUTEX), 1 + take(program) % 8, false);
        break;
    case 11:
        pass_time(place);
        break;
    case 12:
        (void)maintenance_reclaim();
        break;
    case 13:
        change_option(place, take(program));
        break;
    default:
        fuzz_require(check_all() == 0);
        break;
    }
}

int LLVMFuzzerInitialize(int *argument_count, char ***arguments) {
    (void)argument_count;
    (void)arguments;
    reference_init(SLOT_COUNT);
    lifecycle_start();
    note_options();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
    struct program program = {bytes, bytes + count};
    for (unsigned i = 0; i < OPS_MAX && program.next < program.end; i++) {
        carry_out(&program);
    }
    fake_os_mend();
    for (unsigned i = 0; i < SLOT_COUNT; i++) {
        release(&slots[i], false);
    }
    fuzz_require(reference_count() == 0 && live_bytes == 0);
    for (unsigned i = 0; i < CHANGED_COUNT; i++) {
        fuzz_require(options_set(changed_options[i], first_values[i]));
    }
    // The next input finds the heap as this one did. Frees of other threads reach their heaps one
    // reclaim, and one hand-over, later.
    (void)maintenance_reclaim();
    (void)maintenance_reclaim();
    fuzz_require(check_all() == 0);
    struct stats stats;
    stats_collect(&stats);
    fuzz_require(stats.gauge[GAUGE_live_blocks] == 0 && stats.gauge[GAUGE_slab_bytes] == 0);
    return 0;
}
