// Memory of huge blocks goes back to the system without the lock of their table.
#include "isolate.h"

#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <unistd.h>

#include "api/alloc.h"
#include "config/options.h"
#include "fake_os.h"
#include "heap/huge.h"
#include "space/page_map.h"
#include "thread/fork.h"
#include "thread/lifecycle.h"
#include "thread/maintenance.h"

static char *make(size_t bytes) {
    char *block = huge_alloc(bytes, PAGE_BYTES, false);
    assert_non_null(block);
    return block;
}

static struct huge *huge_of(const void *block) {
    struct huge *huge = huge_find((uintptr_t)block);
    assert_non_null(huge);
    return huge;
}

static void drop(char *block) {
    assert_true(huge_free(huge_of(block), (uintptr_t)block));
}

static uint64_t kept_bytes(void) {
    struct huge_totals totals;
    huge_totals(&totals);
    return totals.kept_bytes;
}

static unsigned calls_count, locked_count;

static void note_lock(enum os_call call, void *start, size_t bytes) {
    (void)call;
    (void)start;
    (void)bytes;
    calls_count++;
    locked_count += atomic_load_relaxed(&huge_table_state.lock.state) != 0;
}

static void assert_given_back(unsigned count) {
    assert_int_equal(locked_count, 0);
    assert_true(calls_count >= count);
    assert_int_equal(huge_check(), 0);
    calls_count = 0;
}

static void test_no_call_is_made_under_the_lock(void **state) {
    (void)state;
    page_map_init();
    fake_os_watch(note_lock);
    // Freed beyond what is kept.
    options.huge_cache_bytes = 8 * MIB;
    char *block = make(20 * MIB);
    drop(block);
    assert_given_back(1);
    assert_int_equal(kept_bytes(), 8 * MIB);
    // What was kept makes room for another.
    assert_non_null(huge_alloc(30 * MIB, PAGE_BYTES, true));
    assert_given_back(1);
    // Shorter.
    block = make(20 * MIB);
    assert_true(huge_resize(huge_of(block), 5 * MIB + 1));
    assert_given_back(1);
    // Freed and cleared, and given back for its age.
    options.zero_on_free = 1;
    drop(block);
    assert_given_back(1);
    assert_int_equal(huge_purge(0, true), 5 * MIB + os_page_bytes());
    assert_given_back(1);
    // Never kept.
    options.purge_delay_ms = 0;
    drop(make(7 * MIB));
    assert_given_back(1);
}

// The second piece of a block that moves is copied where the system refuses to move it, and goes then.
static void test_copied_piece_goes_without_the_lock(void **state) {
    (void)state;
    page_map_init();
    drop(make(3 * MIB));
    char *block = make(7 * MIB);
    struct huge *huge = huge_of(block);
    assert_int_equal(huge->seam_count, 1);
    block[0] = block[7 * MIB - 1] = 1;
    fake_os_block_behind(block + 7 * MIB - 1);
    fake_os_watch(note_lock);
    fake_os_fail(OS_MREMAP, 3, true);
    assert_true(huge_resize(huge, 9 * MIB));
    fake_os_mend();
    assert_given_back(1);
    assert_int_equal(fake_os_state(block + 7 * MIB - 1), FAKE_UNMAPPED);
    assert_int_equal(((char *)huge->start)[0], 1);
    assert_int_equal(((char *)huge->start)[7 * MIB - 1], 1);
}

// ---- What others do during the call

static bool is_inside;
static unsigned visits_count;

static void use_others(enum os_call call, void *start, size_t bytes) {
    (void)call;
    if (is_inside) {
        return;
    }
    is_inside = true;
    visits_count++;
    assert_int_equal(huge_check(), 0);
    assert_null(huge_find((uintptr_t)start + bytes - 1));
    char *block = make(5 * MIB);
    assert_true(block + 5 * MIB <= (char *)start || block >= (char *)start + bytes);
    struct huge *huge = huge_of(block);
    assert_true(huge_resize(huge, 9 * MIB));
    block = (char *)huge->start;
    memset(block, 1, 9 * MIB);
    drop(block);
    huge_purge(0, true);
    assert_int_equal(huge_check(), 0);
    is_inside = false;
}

static void test_others_go_on_during_the_call(void **state) {
    (void)state;
    page_map_init();
    options.huge_cache_bytes = 4 * MIB;
    fake_os_watch(use_others);
    char *first = make(20 * MIB);
    char *second = make(40 * MIB);
    drop(first);
    assert_true(huge_resize(huge_of(second), 10 * MIB));
    drop(second);
    huge_purge(0, true);
    assert_in_range(visits_count, 3, 10);
    assert_int_equal(huge_check(), 0);
    assert_int_equal(kept_bytes(), 0);
    assert_int_equal(fake_os_bytes(FAKE_WRITABLE) / MIB, 0);
}

// A range that the system refuses to take is kept again, and the first to be tried next.
static void test_refused_part_is_kept_again(void **state) {
    (void)state;
    page_map_init();
    options.huge_cache_bytes = 8 * MIB;
    char *first = make(20 * MIB);
    char *second = make(6 * MIB);
    fake_os_fail(OS_MUNMAP, 1, true);
    drop(first);
    assert_int_equal(kept_bytes(), 20 * MIB);
    assert_int_equal(huge_check(), 0);
    drop(second);
    assert_int_equal(kept_bytes(), 26 * MIB);
    assert_int_equal(huge_purge(0, true), 0);
    assert_int_equal(huge_check(), 0);
    fake_os_mend();
    assert_int_equal(huge_purge(0, true), 26 * MIB);
    assert_int_equal(huge_check(), 0);
}

// A refusal to move counts until the mapping has been a block again: the system may have had no memory for a moment.
static void test_refused_mapping_moves_when_freed_again(void **state) {
    (void)state;
    page_map_init();
    drop(make(30 * MIB));
    huge_purge(0, true);
    char *freed = make(3 * MIB);
    freed[0] = 1;
    drop(freed);
    fake_os_fail(OS_MREMAP, 1, false);
    assert_int_equal(*make(4 * MIB), 0);
    assert_int_equal(*make(4 * MIB), 0);
    assert_int_equal(fake_os_refused(), 1);
    assert_ptr_equal(make(3 * MIB), freed);
    drop(freed);
    assert_int_equal(*make(4 * MIB), 1);
}

// A second free that comes late finds its page within another block, which has the descriptor by now.
static void test_late_second_free(void **state) {
    (void)state;
    page_map_init();
    options.huge_cache_bytes = 0;
    // All descriptors of a chunk, so that the next block has the one that was freed first.
    for (unsigned i = 0; i < HUGE_CHUNK_COUNT - 2; i++) {
        make(3 * MIB);
    }
    char *before = make(4 * MIB);
    char *block = make(4 * MIB);
    struct huge *huge = huge_of(block);
    drop(block);
    drop(before);
    char *around = make(8 * MIB);
    assert_ptr_equal(around, before);
    assert_ptr_equal(huge_of(around), huge);
    assert_false(huge_free(huge, (uintptr_t)block));
    assert_ptr_equal(huge_find((uintptr_t)block), huge);
    assert_int_equal(huge_check(), 0);
    drop(around);
    assert_int_equal(huge_check(), 0);
}

// ---- In parts

static size_t longest_bytes;

static void note_length(enum os_call call, void *start, size_t bytes) {
    (void)call;
    (void)start;
    longest_bytes = bytes > longest_bytes ? bytes : longest_bytes;
    calls_count++;
}

// One call makes the kernel keep the process's other threads waiting for as long as it takes.
static void test_much_memory_goes_in_parts(void **state) {
    (void)state;
    options.huge_cache_bytes = GIB;
    page_map_init();
    fake_os_watch(note_length);
    char *block = make(1000 * MIB);
    assert_true(huge_resize(huge_of(block), 600 * MIB));
    assert_in_range(calls_count, 10, 100);
    drop(block);
    assert_ptr_equal(huge_alloc(600 * MIB, PAGE_BYTES, true), block);
    assert_in_range(calls_count, 20, 100);
    options.zero_on_free = 1;
    drop(block);
    assert_in_range(calls_count, 30, 100);
    assert_int_equal(huge_purge(0, true), 600 * MIB);
    assert_in_range(calls_count, 40, 200);
    assert_in_range(longest_bytes, MIB, 64 * MIB);
}

// The system takes some parts, not all: what is left is a block's or is kept.
static void test_refused_later_part(void **state) {
    (void)state;
    options.huge_cache_bytes = GIB;
    page_map_init();
    char *block = make(300 * MIB);
    fake_os_fail(OS_MUNMAP, 3, true);
    assert_true(huge_resize(huge_of(block), 100 * MIB));
    fake_os_mend();
    const size_t usable_bytes = huge_of(block)->usable_bytes;
    assert_in_range(usable_bytes, 101 * MIB, 299 * MIB);
    block[usable_bytes - 1] = 1;
    assert_int_equal(fake_os_state(block + usable_bytes), FAKE_UNMAPPED);
    assert_null(huge_find((uintptr_t)block + usable_bytes));
    assert_ptr_equal(huge_find((uintptr_t)block + usable_bytes - 1), huge_of(block));
    assert_int_equal(huge_check(), 0);
    drop(block);
    fake_os_fail(OS_MUNMAP, 2, true);
    const size_t gone_bytes = huge_purge(0, true);
    fake_os_mend();
    assert_in_range(gone_bytes, MIB, usable_bytes - MIB);
    assert_int_equal(kept_bytes(), usable_bytes - gone_bytes);
    assert_int_equal(huge_check(), 0);
    // Refused in part, not as a whole.
    fake_os_fail(OS_MUNMAP, 2, false);
    assert_int_equal(huge_purge(0, true), usable_bytes - gone_bytes);
    assert_int_equal(fake_os_state(block), FAKE_UNMAPPED);
    assert_int_equal(huge_check(), 0);
}

static void refuse_from_now_on(enum os_call call, void *start, size_t bytes) {
    (void)call;
    (void)start;
    (void)bytes;
    fake_os_fail(FAKE_ANY, 1, true);
}

// Neither cleared nor taken by the system, as locked memory of a process that may map no more: cleared all the same.
static void test_refused_twice(void **state) {
    (void)state;
    options.zero_on_free = 1;
    page_map_init();
    char *block = make(5 * MIB);
    memset(block, 1, 5 * MIB);
    fake_os_fail(FAKE_ANY, 1, true);
    drop(block);
    fake_os_mend();
    assert_int_equal(kept_bytes(), 5 * MIB);
    for (size_t i = 0; i < 5 * MIB; i += 512) {
        assert_int_equal(block[i], 0);
    }
    // Once, not with each time that the system refuses it again.
    block[0] = 1;
    fake_os_fail(FAKE_ANY, 1, true);
    assert_int_equal(huge_purge(0, true), 0);
    fake_os_mend();
    assert_int_equal(block[0], 1);
    assert_int_equal(huge_check(), 0);
}

// So is the piece of a block that moved, where it had to be copied.
static void test_copied_piece_is_cleared(void **state) {
    (void)state;
    options.zero_on_free = 1;
    page_map_init();
    drop(make(3 * MIB));
    char *block = make(7 * MIB);
    struct huge *huge = huge_of(block);
    assert_int_equal(huge->seam_count, 1);
    memset(block, 1, 7 * MIB);
    char *piece = (char *)huge_last_piece(huge);
    const size_t piece_bytes = 7 * MIB - (size_t)(piece - block);
    fake_os_block_behind(block + 7 * MIB - 1);
    fake_os_fail(OS_MREMAP, 3, true);
    fake_os_watch(refuse_from_now_on);
    assert_true(huge_resize(huge, 9 * MIB));
    fake_os_watch(NULL);
    fake_os_mend();
    assert_int_equal(((char *)huge->start)[7 * MIB - 1], 1);
    assert_int_equal(kept_bytes(), piece_bytes);
    for (size_t i = 0; i < piece_bytes; i += 512) {
        assert_int_equal(piece[i], 0);
    }
    assert_int_equal(huge_check(), 0);
}

// ---- Waiting for another thread's call

static sem_t called, released;

static void stop_here(enum os_call call, void *start, size_t bytes) {
    (void)call;
    (void)start;
    (void)bytes;
    sem_post(&called);
    sem_wait(&released);
}

static void *unmap_all(void *unused) {
    (void)unused;
    huge_purge(0, true);
    return NULL;
}

static _Atomic(bool)
    waited;  // relaxed: looked at after the threads are joined, or while it must be false

static void fork_lock_and_unlock(void) {
    huge_fork_lock();
    huge_fork_unlock();
}

static void reclaim(void) {
    maintenance_reclaim();
}

static void (*waiter)(void);

static void *wait_for_it(void *unused) {
    (void)unused;
    waiter();
    atomic_store_relaxed(&waited, true);
    return NULL;
}

static uint32_t waiting_count(void) {
    lock_acquire(&huge_table_state.lock);
    const uint32_t count = huge_table_state.waiting_count;
    lock_release(&huge_table_state.lock);
    return count;
}

// An unmapping that `stop_call` holds up, and a thread that waits for it by `function`.
static pthread_t unmapping, waiting;

static void begin_waiting(void (*function)(void),
                          void (*stop_call)(enum os_call call, void *start, size_t bytes)) {
    lifecycle_start();
    sem_init(&called, 0, 0);
    sem_init(&released, 0, 0);
    waiter = function;
    waiter();  // nothing to wait for
    drop(make(5 * MIB));
    fake_os_watch(stop_call);
    assert_int_equal(pthread_create(&unmapping, NULL, unmap_all, NULL), 0);
    sem_wait(&called);
    atomic_store_relaxed(&waited, false);
    assert_int_equal(pthread_create(&waiting, NULL, wait_for_it, NULL), 0);
    for (unsigned ms = 0; waiting_count() == 0; ms++) {
        assert_in_range(ms, 0, 60 * 1000);
        usleep(1000);
    }
    // Woken early it goes on waiting.
    for (unsigned i = 0; i < 3; i++) {
        os_futex_wake_one(&huge_table_state.left_count);
        usleep(1000);
        assert_false(atomic_load_relaxed(&waited));
    }
}

static void end_waiting(void) {
    sem_post(&released);
    pthread_join(unmapping, NULL);
    pthread_join(waiting, NULL);
    fake_os_watch(NULL);
    assert_true(atomic_load_relaxed(&waited));
    assert_int_equal(waiting_count(), 0);
}

// A fork, whose child could not know what has become of the range, and a request that finds no memory.
static void test_who_must_wait_does(void **state) {
    (void)state;
    static void (*const waiters[])(void) = {huge_await_unmapping, fork_lock_and_unlock, reclaim};
    for (size_t i = 0; i < ARRAY_COUNT(waiters); i++) {
        begin_waiting(waiters[i], stop_here);
        end_waiting();
    }
}

static void stop_first(enum os_call call, void *start, size_t bytes) {
    if (calls_count == 0) {
        calls_count++;
        stop_here(call, start, bytes);
    } else {
        note_lock(call, start, bytes);
    }
}

static _Atomic(bool) comes_between;  // relaxed: of the one thread that waits

// The call ends once its waiter has seen that it is under way, and before it sleeps: it must not be asleep then. The linker puts
// this between leaving.c and fake_os.c.
void __real_os_futex_wait(_Atomic(uint32_t) *word, uint32_t expected);
void __wrap_os_futex_wait(_Atomic(uint32_t) *word, uint32_t expected);
void __wrap_os_futex_wait(_Atomic(uint32_t) *word, uint32_t expected) {
    if (word == &huge_table_state.left_count && atomic_load_relaxed(&comes_between)) {
        atomic_store_relaxed(&comes_between, false);
        sem_post(&released);
        pthread_join(unmapping, NULL);
        require(atomic_load_relaxed(word) != expected);
    }
    __real_os_futex_wait(word, expected);
}

static void test_call_that_ends_before_its_waiter_sleeps(void **state) {
    (void)state;
    page_map_init();
    sem_init(&called, 0, 0);
    sem_init(&released, 0, 0);
    drop(make(5 * MIB));
    fake_os_watch(stop_here);
    assert_int_equal(pthread_create(&unmapping, NULL, unmap_all, NULL), 0);
    sem_wait(&called);
    atomic_store_relaxed(&comes_between, true);
    huge_await_unmapping();
    fake_os_watch(NULL);
    assert_false(atomic_load_relaxed(&comes_between));
    assert_int_equal(waiting_count(), 0);
    assert_int_equal(huge_check(), 0);
}

// Threads that go on freeing would make a fork wait for ever: what comes while it waits is unmapped under the lock.
static void test_no_call_begins_that_a_fork_must_wait_for(void **state) {
    (void)state;
    begin_waiting(fork_lock_and_unlock, stop_first);
    options.huge_cache_bytes = 0;
    drop(make(5 * MIB));
    char *block = make(9 * MIB);
    assert_true(huge_resize(huge_of(block), 5 * MIB));
    assert_in_range(calls_count, 3, 10);
    assert_int_equal(locked_count, calls_count - 1);
    assert_int_equal(huge_check(), 0);
    end_waiting();
    fake_os_watch(note_lock);
    calls_count = locked_count = 0;
    drop(block);
    assert_given_back(1);
}

static sem_t later_called, later_released;

static void stop_two(enum os_call call, void *start, size_t bytes) {
    if (calls_count++ == 0) {
        stop_here(call, start, bytes);
    } else {
        sem_post(&later_called);
        sem_wait(&later_released);
    }
}

static void *drop_it(void *block) {
    drop(block);
    return NULL;
}

// Not held for long: who was woken early takes it to look again.
static void assert_free(struct lock *lock) {
    for (unsigned ms = 0; atomic_load_relaxed(&lock->state) != 0; ms++) {
        assert_in_range(ms, 0, 60 * 1000);
        usleep(1000);
    }
}

// Whoever needs no more than the memory itself waits for what was under way, and nobody else for it.
static void test_later_calls_are_not_waited_for(void **state) {
    (void)state;
    sem_init(&later_called, 0, 0);
    sem_init(&later_released, 0, 0);
    begin_waiting(huge_await_unmapping, stop_two);
    options.huge_cache_bytes = 0;
    pthread_t later;
    assert_int_equal(pthread_create(&later, NULL, drop_it, make(5 * MIB)), 0);
    sem_wait(&later_called);
    assert_free(&huge_table_state.lock);
    end_waiting();
    sem_post(&later_released);
    pthread_join(later, NULL);
    assert_int_equal(huge_check(), 0);
}

static void fork_of_a_thread(void) {
    fork_prepare();
    fork_parent();
}

// Nor does it hold others up: they may allocate all the while.
static void test_fork_waits_before_it_takes_locks(void **state) {
    (void)state;
    begin_waiting(fork_of_a_thread, stop_here);
    assert_free(&registry_state.lock);
    assert_free(&huge_table_state.lock);
    assert_non_null(hakmem_alloc(100));
    end_waiting();
}

// As in the child of a fork from a signal handler that came while the thread waited: it goes on waiting there, and must not
// take itself off what is 0 already.
static void test_nobody_waits_in_the_child_of_a_fork(void **state) {
    (void)state;
    static void (*const waiters[])(void) = {huge_await_unmapping, fork_lock_and_unlock};
    for (size_t i = 0; i < ARRAY_COUNT(waiters); i++) {
        begin_waiting(waiters[i], stop_here);
        lock_acquire(&huge_table_state.lock);
        huge_fork_child();
        lock_release(&huge_table_state.lock);
        sem_post(&released);
        pthread_join(unmapping, NULL);
        while (!atomic_load_relaxed(&waited)) {
            os_futex_wake_one(&huge_table_state.left_count);
        }
        pthread_join(waiting, NULL);
        assert_int_equal(waiting_count(), 0);
        assert_int_equal(huge_table_state.forking_count, 0);
        fake_os_watch(note_lock);
        drop(make(5 * MIB));
        assert_int_equal(huge_purge(0, true), 5 * MIB);
        assert_given_back(1);
        fake_os_watch(NULL);
    }
}

// As in a signal handler that interrupts the call: it neither waits for it nor makes it again.
static void fork_inside(enum os_call call, void *start, size_t bytes) {
    (void)call;
    (void)start;
    (void)bytes;
    visits_count++;
    fork_lock_and_unlock();
    assert_int_equal(huge_purge(0, true), 0);
}

static void test_own_call_is_not_waited_for(void **state) {
    (void)state;
    page_map_init();
    drop(make(5 * MIB));
    fake_os_watch(fork_inside);
    assert_int_equal(huge_purge(0, true), 5 * MIB);
    assert_int_equal(visits_count, 1);
    assert_int_equal(huge_check(), 0);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_call_is_made_under_the_lock),
        cmocka_unit_test(test_copied_piece_goes_without_the_lock),
        cmocka_unit_test(test_others_go_on_during_the_call),
        cmocka_unit_test(test_refused_part_is_kept_again),
        cmocka_unit_test(test_refused_mapping_moves_when_freed_again),
        cmocka_unit_test(test_late_second_free),
        cmocka_unit_test(test_much_memory_goes_in_parts),
        cmocka_unit_test(test_refused_later_part),
        cmocka_unit_test(test_refused_twice),
        cmocka_unit_test(test_copied_piece_is_cleared),
        cmocka_unit_test(test_who_must_wait_does),
        cmocka_unit_test(test_call_that_ends_before_its_waiter_sleeps),
        cmocka_unit_test(test_no_call_begins_that_a_fork_must_wait_for),
        cmocka_unit_test(test_later_calls_are_not_waited_for),
        cmocka_unit_test(test_fork_waits_before_it_takes_locks),
        cmocka_unit_test(test_nobody_waits_in_the_child_of_a_fork),
        cmocka_unit_test(test_own_call_is_not_waited_for),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
