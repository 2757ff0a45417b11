// How much stack the calls need: threads may have little of it. Each runs on a thread of its own,
// whose stack is painted before; what lost its paint was used.
#include "api.h"

enum { STACK_BYTES = 256 * 1024, STACK_PER_CALL_MAX = 4096, PAINT = 0xa5 };

static void nothing(void) {
}

static size_t sizes(size_t round) {
    static const size_t some[] = {1,      100,     1000,    10000,   65536,   65537,
                                  300000, 1 << 20, 2 << 20, 3 << 20, 9 << 20, 48};
    return some[round % (sizeof some / sizeof some[0])];
}

enum { ROUNDS = 600 };
static void *kept[ROUNDS];

static void call_malloc(void) {
    for (size_t i = 0; i < ROUNDS; i++) {
        kept[i] = malloc(sizes(i));
    }
}

static void call_free(void) {
    for (size_t i = 0; i < ROUNDS; i++) {
        free(kept[i]);
        kept[i] = NULL;
    }
}

static void call_calloc(void) {
    for (size_t i = 0; i < ROUNDS; i++) {
        kept[i] = calloc(1, sizes(i));
    }
}

static void call_realloc(void) {
    for (size_t i = 0; i < ROUNDS; i++) {
        kept[i] = realloc(kept[i], sizes(i * 7 + 3));
    }
}

static void call_reallocarray(void) {
    for (size_t i = 0; i < ROUNDS; i++) {
        kept[i] = reallocarray(kept[i], 2, sizes(i * 5 + 1));
    }
}

static void call_aligned(void) {
    for (size_t i = 0; i < ROUNDS; i += 4) {
        kept[i] = memalign((size_t)16 << i % 18, sizes(i));
        kept[i + 1] = aligned_alloc(4096, sizes(i));
        (void)posix_memalign(&kept[i + 2], 64, sizes(i));
        kept[i + 3] = i % 8 == 0 ? valloc(sizes(i)) : pvalloc(sizes(i));
    }
}

static void call_usable_size(void) {
    for (size_t i = 0; i < ROUNDS; i++) {
        (void)malloc_usable_size(kept[i]);
    }
}

static void call_refused(void) {
    kept[0] = malloc(opaque(SIZE_MAX));
    kept[0] = memalign(opaque(1 << 20), opaque(PTRDIFF_MAX));
}

static void call_trim(void) {
    malloc_trim(0);
}

struct use {
    void (*call)(void);
    unsigned char *stack;
    size_t bytes;
};

// What lies this near to the caller's frame is the measure's own.
enum { OWN_BYTES = 512 };

// Paints all that is free of this thread's stack, calls, and looks how deep the paint is gone.
static __attribute__((noinline)) void *measure(void *argument) {
    struct use *use = (struct use *)argument;
    unsigned char *frame = (unsigned char *)__builtin_frame_address(0);
    size_t free_bytes = (size_t)(frame - use->stack) - OWN_BYTES;
    memset(use->stack, PAINT, free_bytes);
    use->call();
    size_t untouched = 0;
    while (untouched < free_bytes && use->stack[untouched] == PAINT) {
        untouched++;
    }
    use->bytes = untouched == free_bytes ? 0 : free_bytes + OWN_BYTES - untouched;
    return NULL;
}

// Bytes of stack that a call needs in a thread that has just started.
static size_t stack_used(void (*call)(void)) {
    struct use use = {call, (unsigned char *)test_memory(STACK_BYTES), 0};
    pthread_attr_t attributes;
    require(pthread_attr_init(&attributes) == 0);
    require(pthread_attr_setstack(&attributes, use.stack, STACK_BYTES) == 0);
    pthread_t thread;
    require(pthread_create(&thread, &attributes, measure, &use) == 0);
    require(pthread_join(thread, NULL) == 0);
    require(pthread_attr_destroy(&attributes) == 0);
    require(munmap(use.stack, STACK_BYTES) == 0);
    return use.bytes;
}

static void every_entry_point_needs_less_than_4_kib(void **state) {
    (void)state;
    static const struct {
        const char *name;
        void (*call)(void);
    } calls[] = {
        {"malloc", call_malloc},   {"usable_size", call_usable_size},
        {"realloc", call_realloc}, {"reallocarray", call_reallocarray},
        {"free", call_free},       {"calloc", call_calloc},
        {"free", call_free},       {"memalign", call_aligned},
        {"free", call_free},       {"refused", call_refused},
        {"trim", call_trim},
    };
    // Each once before: the loader binds a function at its first call, on the caller's stack.
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        calls[i].call();
    }
    call_free();
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        size_t used = stack_used(calls[i].call);
        behaviour_say("%s: %zu bytes of stack", calls[i].name, used);
        assert_true(used < STACK_PER_CALL_MAX);
    }
    call_free();
}

// The measure itself: what is used is seen.
static void use_10_kib(void) {
    volatile char large[10 * 1024];
    for (size_t i = 0; i < sizeof large; i += 64) {
        large[i] = 1;
    }
}

static void a_large_frame_is_seen(void **state) {
    (void)state;
    size_t used = stack_used(use_10_kib);
    assert_true(used >= 10 * 1024 && used < 12 * 1024);
    assert_true(stack_used(nothing) < 1024);
}

int main(void) {
    behaviour_require_allocator();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_large_frame_is_seen),
        cmocka_unit_test(every_entry_point_needs_less_than_4_kib),
    };
    int failed = cmocka_run_group_tests_name("stack", tests, NULL, NULL);
    behaviour_require_sound_heap();
    return failed;
}
