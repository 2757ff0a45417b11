// malloc_usable_size: at least the request, the same for as long as the block lives, and every
// byte of it belongs to the block.
#include "api.h"

enum { KEPT = 64 };

struct ring {
    char *block[KEPT];
    size_t usable[KEPT];
    uint64_t key[KEPT];
    size_t next;
};

static void release(struct ring *ring, size_t at) {
    if (ring->block[at] == NULL) {
        return;
    }
    assert_int_equal(malloc_usable_size(ring->block[at]), ring->usable[at]);
    size_t matched = pattern_differs(ring->block[at], ring->usable[at], ring->key[at]);
    if (matched != ring->usable[at]) {
        fail_msg("byte %zu of %zu usable bytes was overwritten by a neighbour", matched,
                 ring->usable[at]);
    }
    free(ring->block[at]);
    ring->block[at] = NULL;
}

static void keep(struct ring *ring, void *block, size_t bytes) {
    assert_non_null(block);
    size_t at = ring->next++ % KEPT;
    release(ring, at);
    size_t usable = malloc_usable_size(block);
    assert_true(usable >= bytes);
    ring->block[at] = (char *)block;
    ring->usable[at] = usable;
    ring->key[at] = ring->next;
    pattern_fill(block, usable, ring->next);
}

static void release_all(struct ring *ring) {
    for (size_t at = 0; at < KEPT; at++) {
        release(ring, at);
    }
}

static void usable_size_of_null_is_zero(void **state) {
    (void)state;
    assert_int_equal(malloc_usable_size(NULL), 0);
}

static void every_size_to_16_kib(void **state) {
    (void)state;
    static struct ring ring;
    for (size_t bytes = 0; bytes <= 16 * KIB; bytes++) {
        keep(&ring, malloc(bytes), bytes);
    }
    release_all(&ring);
}

static void visit_malloc(size_t bytes, void *context) {
    struct ring *ring = (struct ring *)context;
    keep(ring, malloc(bytes), bytes);
    keep(ring, calloc(1, bytes), bytes);
    keep(ring, realloc(NULL, bytes), bytes);
}

static void borders_to_1_mib(void **state) {
    (void)state;
    static struct ring ring;
    for_border_sizes(MIB, visit_malloc, &ring);
    release_all(&ring);
}

static void large_and_huge(void **state) {
    (void)state;
    static struct ring ring;
    for (size_t bytes = 64 * KIB; bytes < 8 * MIB; bytes += bytes / 3 + 1) {
        keep(&ring, malloc(bytes), bytes);
    }
    keep(&ring, malloc(40 * MIB), 40 * MIB);
    release_all(&ring);
}

static void aligned_blocks(void **state) {
    (void)state;
    static struct ring ring;
    for (size_t alignment = 8; alignment <= MIB; alignment *= 2) {
        for (size_t bytes = 1; bytes < 300000; bytes = bytes * 3 + 1) {
            keep(&ring, memalign(alignment, bytes), bytes);
        }
    }
    release_all(&ring);
}

static void random_sizes(void **state) {
    (void)state;
    static struct ring ring;
    uint64_t seed = 31337;
    for (int i = 0; i < 20000; i++) {
        size_t bytes = random_log_size(&seed, 128 * KIB);
        keep(&ring, malloc(bytes), bytes);
    }
    release_all(&ring);
}

int main(void) {
    behaviour_require_allocator();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usable_size_of_null_is_zero),
        cmocka_unit_test(every_size_to_16_kib),
        cmocka_unit_test(borders_to_1_mib),
        cmocka_unit_test(large_and_huge),
        cmocka_unit_test(aligned_blocks),
        cmocka_unit_test(random_sizes),
    };
    int failed = cmocka_run_group_tests_name("usable", tests, NULL, NULL);
    behaviour_require_sound_heap();
    return failed;
}
