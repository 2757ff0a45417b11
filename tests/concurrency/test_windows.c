// Windows between a system call and the books about it, held open: what another thread could do there
// is done by the call itself. The linker puts the wrappers below in place of the system's functions.
#include "base/bits.h"
#include "concurrency.h"
#include "heap/huge.h"
#include "heap/large.h"
#include "os/os.h"
#include "space/arena.h"
#include "space/arena_pages.h"
#include "space/arena_purge.h"
#include "space/page_map.h"

#include <sys/wait.h>
#include <unistd.h>

// What happens in the window; NULL: nothing. Called once.
static void (*in_window)(void);

static void open_window(void) {
    void (*act)(void) = in_window;
    if (act != NULL) {
        in_window = NULL;
        act();
    }
}

bool __real_os_resize(void *start, size_t old_bytes, size_t new_bytes);
bool __wrap_os_resize(void *start, size_t old_bytes, size_t new_bytes);
bool __wrap_os_resize(void *start, size_t old_bytes, size_t new_bytes) {
    const bool done = __real_os_resize(start, old_bytes, new_bytes);
    if (done) {
        open_window();
    }
    return done;
}

enum os_moved __real_os_move(void *start, size_t old_bytes, void *destination, size_t new_bytes,
                             bool writable);
enum os_moved __wrap_os_move(void *start, size_t old_bytes, void *destination, size_t new_bytes,
                             bool writable);
enum os_moved __wrap_os_move(void *start, size_t old_bytes, void *destination, size_t new_bytes,
                             bool writable) {
    const enum os_moved moved = __real_os_move(start, old_bytes, destination, new_bytes, writable);
    if (moved == OS_MOVED) {
        open_window();
    }
    return moved;
}

bool __real_os_unmap(void *start, size_t bytes);
bool __wrap_os_unmap(void *start, size_t bytes);
bool __wrap_os_unmap(void *start, size_t bytes) {
    const bool done = __real_os_unmap(start, bytes);
    if (done) {
        open_window();
    }
    return done;
}

bool __real_os_purge(void *start, size_t bytes);
bool __wrap_os_purge(void *start, size_t bytes);
bool __wrap_os_purge(void *start, size_t bytes) {
    open_window();
    return __real_os_purge(start, bytes);
}

// ---- Addresses that a huge block gives up become a superslab's

#define RUNS 80
static void *runs[RUNS];
static uintptr_t given_up, given_up_end;

// More large blocks than all holes between mappings have room for: new superslabs are mapped where the
// system finds addresses, those just given up among them.
static void take_addresses(void) {
    for (unsigned i = 0; i < RUNS; i++) {
        runs[i] = large_alloc(LARGE_BYTES_MAX, PAGE_BYTES, false);
        REQUIRE(runs[i] != NULL);
    }
}

// Each is known, and can be freed.
static void give_addresses_back(void) {
    unsigned inside = 0;
    for (unsigned i = 0; i < RUNS; i++) {
        inside += (uintptr_t)runs[i] >= given_up && (uintptr_t)runs[i] < given_up_end;
        assert_int_equal(hakmem_block_bytes(runs[i]), LARGE_BYTES_MAX);
        hakmem_dealloc(runs[i]);
    }
    // Otherwise nothing was tested.
    assert_true(inside > 0);
}

// Too short for two whole pages of the map of pages: giving those back would be taken for the window.
#define LONG_BYTES (60 * MIB)
#define SHORT_BYTES (16 * MIB)

static void test_shrinking(void **state) {
    (void)state;
    struct block *block = block_new(LONG_BYTES);
    given_up = (uintptr_t)block + SHORT_BYTES;
    given_up_end = (uintptr_t)block + LONG_BYTES;
    in_window = take_addresses;
    block = hakmem_resize(block, SHORT_BYTES);
    assert_non_null(block);
    assert_null(in_window);
    give_addresses_back();
    block_delete(block_mark(block, SHORT_BYTES));
}

static void test_moving(void **state) {
    (void)state;
    // Of two blocks side by side, the lower one moves when it grows.
    struct block *low = block_new(SHORT_BYTES);
    struct block *high = block_new(SHORT_BYTES);
    if (low > high) {
        struct block *lower = high;
        high = low;
        low = lower;
    }
    given_up = (uintptr_t)low;
    given_up_end = (uintptr_t)low + SHORT_BYTES;
    const uint64_t moves = counter_now(COUNTER_huge_moves);
    in_window = take_addresses;
    struct block *moved = hakmem_resize(low, LONG_BYTES);
    assert_non_null(moved);
    assert_int_equal(counter_now(COUNTER_huge_moves), moves + 1);
    assert_null(in_window);
    give_addresses_back();
    block_delete(high);
    block_delete(block_mark(moved, LONG_BYTES));
}

static void test_unmapping(void **state) {
    (void)state;
    assert_true(options_set("huge_cache_bytes", "0"));
    struct block *block = block_new(LONG_BYTES);
    given_up = (uintptr_t)block;
    given_up_end = (uintptr_t)block + LONG_BYTES;
    in_window = take_addresses;
    block_delete(block);
    assert_null(in_window);
    give_addresses_back();
    assert_true(options_set("huge_cache_bytes", "64M"));
}

// ---- Pages that are being given back to the system are nobody's

static void *taken[64];

static void use_other_pages(void) {
    REQUIRE(arena_check() == 0);
    for (unsigned i = 0; i < ARRAY_COUNT(taken); i++) {
        taken[i] = large_alloc(100 * KIB + i * 10 * KIB, PAGE_BYTES, true);
        REQUIRE(taken[i] != NULL);
        memset(taken[i], 0x5a, 100 * KIB);
    }
    // Another round in the middle of the first.
    hakmem_dealloc(taken[0]);
    arena_purge(0, ARENA_PURGE_ALL);
    REQUIRE(arena_check() == 0);
}

static void test_purging(void **state) {
    (void)state;
    void *blocks[20];
    for (unsigned i = 0; i < 20; i++) {
        blocks[i] = hakmem_alloc(500 * KIB);
        memset(blocks[i], 1, 500 * KIB);
    }
    for (unsigned i = 0; i < 20; i += 2) {
        hakmem_dealloc(blocks[i]);
    }
    in_window = use_other_pages;
    arena_purge(0, ARENA_PURGE_ALL);
    assert_null(in_window);
    assert_int_equal(arena_check(), 0);
    for (unsigned i = 1; i < 20; i += 2) {
        hakmem_dealloc(blocks[i]);
    }
    for (unsigned i = 1; i < ARRAY_COUNT(taken); i++) {
        // Purging took nothing away that was in use.
        const unsigned char *data = taken[i];
        for (size_t k = 0; k < 100 * KIB; k++) {
            assert_int_equal(data[k], 0x5a);
        }
        hakmem_dealloc(taken[i]);
    }
}

// A purge is due once, however many threads find it so at the same time.
static void purge_as_another_thread(void) {
    REQUIRE(arena_purge(1000000, 8 * MIB) == 0);
}

// Without the ticks of hakmem_dealloc(), which purge by the real clock.
static void free_large(void *block) {
    assert_true(large_free(large_find((uintptr_t)block), (uintptr_t)block));
}

static void test_purging_once(void **state) {
    (void)state;
    arena_purge(0, ARENA_PURGE_ALL);
    void *old = large_alloc(500 * KIB, PAGE_BYTES, false);
    void *young = large_alloc(500 * KIB, PAGE_BYTES, false);
    REQUIRE(old != NULL && young != NULL);
    free_large(old);
    assert_int_equal(arena_purge(500000, 8 * MIB), 0);
    free_large(young);
    // The first block's pages are old enough, the second's have just been freed.
    in_window = purge_as_another_thread;
    assert_int_equal(arena_purge(1000000, 8 * MIB), 512 * KIB);
    assert_null(in_window);
}

// A thread that forks while another one purges: the child, which has no such thread, has its pages back.
static void *fork_elsewhere(void *context) {
    arena_fork_lock();
    const pid_t child = fork();
    if (child == 0) {
        arena_fork_child();
    }
    arena_fork_unlock();
    if (child == 0) {
        REQUIRE(arena_check() == 0);
        REQUIRE(arena_dirty_bytes() == 512 * KIB);
        _exit(0);
    }
    REQUIRE(waitpid(child, (int *)context, 0) == child);
    return NULL;
}

static void fork_in_window(void) {
    pthread_t thread;
    int status = -1;
    REQUIRE(pthread_create(&thread, NULL, fork_elsewhere, &status) == 0);
    REQUIRE(pthread_join(thread, NULL) == 0);
    REQUIRE(status == 0);
}

static void test_purging_in_a_fork(void **state) {
    (void)state;
    void *block = hakmem_alloc(500 * KIB);
    arena_purge(0, ARENA_PURGE_ALL);
    hakmem_dealloc(block);
    in_window = fork_in_window;
    arena_purge(0, ARENA_PURGE_ALL);
    assert_null(in_window);
    assert_int_equal(arena_check(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_shrinking, finish_test),
        cmocka_unit_test_teardown(test_moving, finish_test),
        cmocka_unit_test_teardown(test_unmapping, finish_test),
        cmocka_unit_test_teardown(test_purging, finish_test),
        cmocka_unit_test_teardown(test_purging_once, finish_test),
        cmocka_unit_test_teardown(test_purging_in_a_fork, finish_test),
    };
    lifecycle_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
