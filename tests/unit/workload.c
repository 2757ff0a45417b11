#include "workload.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "api/alloc.h"
#include "base/bits.h"
#include "control/check.h"
#include "fake_os.h"
#include "thread/cache.h"

enum { SLOT_COUNT = 400, HANDED_MAX = 60 };

static struct slot {
    unsigned char *block;
    size_t bytes;      // of the request
    size_t alignment;  // that it was made with
    uint64_t key;
} slots[SLOT_COUNT];

// Every byte of a small block, and the first bytes of each 4 KiB and the last ones of a larger one.
static size_t next_place(size_t at, size_t bytes) {
    if (bytes <= 1024 || at % 4096 < 32) {
        return at + 1;
    }
    const size_t next = align_up(at, 4096);
    return next < bytes || at >= bytes - 1 ? next : bytes - 1;
}

static unsigned char pattern(const struct slot *slot, size_t at) {
    return (unsigned char)((slot->key + at) * UINT64_C(0x9E3779B97F4A7C15) >> 56);
}

static void fill(const struct slot *slot) {
    for (size_t at = 0; at < slot->bytes; at = next_place(at, slot->bytes)) {
        slot->block[at] = pattern(slot, at);
    }
}

// The first `bytes` of what fill() wrote.
static void check_pattern(const struct slot *slot, size_t bytes) {
    for (size_t at = 0; at < bytes; at = next_place(at, slot->bytes)) {
        require(slot->block[at] == pattern(slot, at));
    }
}

static void check_slot(const struct slot *slot) {
    require(hakmem_block_bytes(slot->block) >= slot->bytes);
    check_pattern(slot, slot->bytes);
}

static bool check_refused(struct workload *workload, const void *block) {
    if (block == NULL) {
        require(errno == ENOMEM);
        require(fake_os_refused() != 0);
        workload->refused++;
    }
    return block == NULL;
}

static size_t choose_bytes(struct workload *workload) {
    const uint64_t dice = random_next(&workload->random_state);
    size_t most = 1500;
    if (dice % 32 == 0) {
        most = workload->bytes_max;
    } else if (dice % 32 < 8) {
        most = 70000;
    }
    return (dice >> 8) % (most < workload->bytes_max ? most : workload->bytes_max);
}

// No call is under way: a process that ended here would be checked.
static void check_left(void) {
    require(!thread_cache->entered);
}

static void allocate(struct workload *workload, struct slot *slot) {
    const uint64_t dice = random_next(&workload->random_state);
    const size_t bytes = choose_bytes(workload);
    size_t alignment = BLOCK_ALIGN;
    unsigned char *block;
    errno = 0;
    if (dice % 4 == 0) {
        block = hakmem_alloc_zeroed(bytes);
        for (size_t at = 0; block != NULL && at < bytes; at = next_place(at, bytes)) {
            require(block[at] == 0);
        }
    } else if (dice % 4 == 1) {
        alignment = BLOCK_ALIGN << (dice >> 8) % ((dice >> 16) % 8 == 0 ? 19 : 9);
        block = hakmem_alloc_aligned(alignment, bytes);
    } else {
        block = hakmem_alloc(bytes);
    }
    check_left();
    if (!check_refused(workload, block)) {
        require((uintptr_t)block % alignment == 0);
        *slot = (struct slot){block, bytes, alignment, dice};
        fill(slot);
        require(hakmem_block_bytes(block) >= bytes);
    }
}

static void resize(struct workload *workload, struct slot *slot) {
    check_slot(slot);
    const size_t bytes = choose_bytes(workload) + 1;
    errno = 0;
    unsigned char *block = hakmem_resize(slot->block, bytes);
    check_left();
    if (check_refused(workload, block)) {
        check_slot(slot);
        return;
    }
    require((uintptr_t)block % BLOCK_ALIGN == 0);
    slot->block = block;
    check_pattern(slot, bytes < slot->bytes ? bytes : slot->bytes);
    slot->bytes = bytes;
    fill(slot);
}

static void release(struct slot *slot) {
    check_slot(slot);
    errno = 77;
    hakmem_dealloc(slot->block);
    require(errno == 77);
    check_left();
    slot->block = NULL;
}

// Another thread frees what this one made, and makes what this one will free.
struct handed {
    struct workload *workload;
    struct slot slots[HANDED_MAX];
    unsigned count;
};

static void *work_elsewhere(void *argument) {
    struct handed *handed = argument;
    for (unsigned i = 0; i < handed->count; i++) {
        struct slot *slot = &handed->slots[i];
        if (slot->block != NULL) {
            release(slot);
        }
        if (i % 3 == 0) {
            allocate(handed->workload, slot);
        }
    }
    return NULL;
}

static void hand_over(struct workload *workload) {
    static struct handed handed;
    handed.workload = workload;
    handed.count = 0;
    unsigned places[HANDED_MAX];
    while (handed.count < HANDED_MAX) {
        const unsigned place = (unsigned)(random_next(&workload->random_state) % SLOT_COUNT);
        handed.slots[handed.count] = slots[place];
        slots[place].block = NULL;
        places[handed.count++] = place;
    }
    pthread_t thread;
    require(pthread_create(&thread, NULL, work_elsewhere, &handed) == 0);
    require(pthread_join(thread, NULL) == 0);
    for (unsigned i = 0; i < handed.count; i++) {
        if (handed.slots[i].block != NULL && slots[places[i]].block == NULL) {
            slots[places[i]] = handed.slots[i];
        } else if (handed.slots[i].block != NULL) {
            release(&handed.slots[i]);
        }
    }
}

static void pass_time(void) {
    fake_os_pass_ms(300);
    if (cache_is_real(thread_cache)) {
        thread_cache->pace_ticks = 0;
    }
}

void workload_start(struct workload *workload, uint64_t seed, size_t bytes_max) {
    *workload = (struct workload){.random_state = seed | 1, .bytes_max = bytes_max};
}

void workload_run(struct workload *workload, unsigned steps) {
    for (unsigned n = 0; n < steps; n++) {
        const uint64_t dice = random_next(&workload->random_state);
        struct slot *slot = &slots[dice % SLOT_COUNT];
        if (slot->block == NULL) {
            allocate(workload, slot);
        } else if ((dice >> 32) % 3 == 0) {
            resize(workload, slot);
        } else {
            release(slot);
        }
        if (++workload->steps % 64 == 0) {
            pass_time();
        }
        if (workload->steps % 256 == 0) {
            hand_over(workload);
            require(check_all() == 0);
        }
    }
}

void workload_check(void) {
    for (unsigned i = 0; i < SLOT_COUNT; i++) {
        if (slots[i].block != NULL) {
            check_slot(&slots[i]);
        }
    }
    require(check_all() == 0);
}

void workload_free_all(void) {
    for (unsigned i = 0; i < SLOT_COUNT; i++) {
        if (slots[i].block != NULL) {
            release(&slots[i]);
        }
    }
}

unsigned workload_live_count(void) {
    unsigned count = 0;
    for (unsigned i = 0; i < SLOT_COUNT; i++) {
        count += slots[i].block != NULL;
    }
    return count;
}

void workload_damage(void) {
    unsigned place = 0;
    while (slots[place].block == NULL || slots[place].bytes == 0) {
        place++;
    }
    slots[place].block[slots[place].bytes - 1] ^= 1;
}
