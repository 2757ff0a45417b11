// Huge blocks come, grow, shrink and go in several threads, while the process forks. Contents stay, and zeroed blocks
// read as zero, whatever kept mapping they come from: some were filled in part, some have locked pages or pages that the
// program wished to be huge, so that the kernel refuses to move or to take them.
#include "behaviour.h"

enum { THREAD_COUNT = 2, STEP_COUNT = 120, SLOT_COUNT = 5, FORK_COUNT = 20 };

// A fork copies page tables and waits for one unmapping at most, each of which takes milliseconds; the rest is for what else
// a machine of two processors may have to do.
enum { FORK_MS_MAX = 2 * 1000 };

struct slot {
    unsigned char *block;
    size_t bytes, filled_bytes;
    uint64_t key;
};

static uint64_t base_seed;
static int forks_done;

static size_t random_bytes(uint64_t *seed) {
    return random_below(seed, 8) == 0 ? 64 * KIB + random_below(seed, 2 * MIB)
                                      : 2 * MIB + random_below(seed, 16 * MIB);
}

static void require_contents(const struct slot *slot, size_t bytes) {
    require_that(pattern_differs(slot->block, bytes, slot->key) == bytes,
                 "a block of %zu bytes is damaged", slot->bytes);
}

static void fill(struct slot *slot, uint64_t *seed) {
    slot->filled_bytes = random_below(seed, 3) == 0 ? random_below(seed, slot->bytes) : slot->bytes;
    slot->key = behaviour_random(seed);
    pattern_fill(slot->block, slot->filled_bytes, slot->key);
}

static void drop(struct slot *slot) {
    require_contents(slot, slot->filled_bytes);
    free(slot->block);
    *slot = (struct slot){0};
}

static void replace(struct slot *slot, uint64_t *seed, bool zeroed) {
    drop(slot);
    slot->bytes = random_bytes(seed);
    slot->block = (unsigned char *)(zeroed ? calloc(1, slot->bytes) : malloc(slot->bytes));
    require(slot->block != NULL);
    require_that(!zeroed || all_zero(slot->block, slot->bytes), "%zu zeroed bytes are not zero",
                 slot->bytes);
    fill(slot, seed);
}

static void resize(struct slot *slot, uint64_t *seed) {
    slot->bytes = random_bytes(seed);
    slot->block = (unsigned char *)realloc(slot->block, slot->bytes);
    require(slot->block != NULL);
    require_contents(slot, slot->filled_bytes < slot->bytes ? slot->filled_bytes : slot->bytes);
    fill(slot, seed);
}

// What the system refuses of it does not matter.
static void treat_a_part(const struct slot *slot, uint64_t *seed) {
    const size_t machine_page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t pages = slot->bytes / machine_page;
    if (pages < 3) {
        return;
    }
    const uintptr_t second =
        ((uintptr_t)slot->block + machine_page) & ~(uintptr_t)(machine_page - 1);
    const size_t skipped = random_below(seed, pages - 2);
    void *start = (void *)(second + skipped * machine_page);
    const size_t bytes = (1 + random_below(seed, pages - 2 - skipped)) * machine_page;
    int done;
    switch (random_below(seed, 3)) {
    case 0:
        done = mlock(start, bytes < 16 * machine_page ? bytes : 16 * machine_page);
        break;
    case 1:
        done = madvise(start, bytes, MADV_HUGEPAGE);
        break;
    default:
        done = madvise(start, bytes, MADV_NOHUGEPAGE);
        break;
    }
    (void)done;
}

static void *work(void *argument) {
    uint64_t seed = random_stream(base_seed, (uintptr_t)argument);
    struct slot slots[SLOT_COUNT] = {{NULL, 0, 0, 0}};
    for (int i = 0; i < STEP_COUNT || !__atomic_load_n(&forks_done, __ATOMIC_RELAXED); i++) {
        struct slot *slot = &slots[random_below(&seed, SLOT_COUNT)];
        switch (random_below(&seed, 8)) {
        case 0:
        case 1:
        case 2:
            replace(slot, &seed, true);
            break;
        case 3:
            replace(slot, &seed, false);
            break;
        case 4:
        case 5:
            resize(slot, &seed);
            break;
        case 6:
            drop(slot);
            break;
        default:
            treat_a_part(slot, &seed);
            break;
        }
    }
    for (int i = 0; i < SLOT_COUNT; i++) {
        drop(&slots[i]);
    }
    return NULL;
}

static void use_in_child(void) {
    uint64_t seed = random_stream(base_seed, 0);
    struct slot slot = {NULL, 0, 0, 0};
    replace(&slot, &seed, true);
    resize(&slot, &seed);
    drop(&slot);
    behaviour_require_sound_heap();
    _exit(0);
}

int main(void) {
    behaviour_require_allocator();
    base_seed = behaviour_seed();
    pthread_t threads[THREAD_COUNT];
    for (uintptr_t i = 0; i < THREAD_COUNT; i++) {
        start_thread(&threads[i], 0, work, (void *)(i + 1));
    }
    uint64_t longest_ms = 0;
    for (int i = 0; i < FORK_COUNT; i++) {
        const uint64_t before_ms = now_ms();
        const pid_t child = fork();
        require(child >= 0);
        if (child == 0) {
            use_in_child();
        }
        const uint64_t ms = now_ms() - before_ms;
        longest_ms = ms > longest_ms ? ms : longest_ms;
        int status = -1;
        require(waitpid(child, &status, 0) == child);
        require_that(status == 0, "the child of a fork ended with status %d", status);
        sleep_ms(20);
    }
    __atomic_store_n(&forks_done, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < THREAD_COUNT; i++) {
        require(pthread_join(threads[i], NULL) == 0);
    }
    behaviour_require_sound_heap();
    behaviour_say("%d forks, the longest took %llu ms", FORK_COUNT, (unsigned long long)longest_ms);
    require_that(longest_ms < FORK_MS_MAX, "a fork took %llu ms", (unsigned long long)longest_ms);
    return 0;
}
