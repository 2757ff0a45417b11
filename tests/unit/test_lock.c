// The lock, on the real kernel.
#include "isolate.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "os/lock.h"
#include "os/os.h"
#include "os/streams.h"

enum { THREAD_COUNT = 4, ROUNDS = 20000 };

static struct lock lock = LOCK_INITIAL(LOCK_RANK_HEAP);
static uint64_t guarded;  // plain: the lock is what orders it

static void start_threads(pthread_t *threads, unsigned count, void *(*work)(void *)) {
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, work, NULL), 0);
    }
}

static void join_threads(const pthread_t *threads, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
}

static void *count_up(void *argument) {
    for (unsigned i = 0; i < ROUNDS; i++) {
        lock_acquire(&lock);
        guarded++;
        lock_release(&lock);
    }
    return argument;
}

static void test_one_at_a_time(void **state) {
    (void)state;
    pthread_t threads[THREAD_COUNT];
    start_threads(threads, THREAD_COUNT, count_up);
    join_threads(threads, THREAD_COUNT);
    assert_int_equal(guarded, THREAD_COUNT * ROUNDS);
    assert_int_equal(atomic_load_relaxed(&lock.state), 0);
}

static uint64_t futex_calls(void) {
    return atomic_load_relaxed(&os_call_counters.calls[OS_FUTEX]);
}

static void *count_once(void *argument) {
    lock_acquire(&lock);
    guarded++;
    lock_release(&lock);
    return argument;
}

static void test_waiters_sleep_and_are_woken(void **state) {
    (void)state;
    pthread_t threads[THREAD_COUNT];
    lock_acquire(&lock);
    const uint64_t before = futex_calls();
    start_threads(threads, THREAD_COUNT, count_once);
    while (futex_calls() < before + THREAD_COUNT) {
        usleep(1000);
    }
    assert_int_equal(guarded, 0);
    assert_int_equal(atomic_load_relaxed(&lock.state), 2);
    lock_release(&lock);
    join_threads(threads, THREAD_COUNT);
    assert_int_equal(guarded, THREAD_COUNT);
    assert_int_equal(atomic_load_relaxed(&lock.state), 0);
}

static void test_uncontended_costs_no_system_call(void **state) {
    (void)state;
    const uint64_t before = futex_calls();
    for (unsigned i = 0; i < 1000; i++) {
        lock_acquire(&lock);
        lock_release(&lock);
        assert_true(lock_try_acquire(&lock));
        lock_release(&lock);
    }
    assert_int_equal(futex_calls(), before);
}

static void *try_once(void *argument) {
    bool *got = argument;
    *got = lock_try_acquire(&lock);
    return NULL;
}

static void test_try_fails_while_held(void **state) {
    (void)state;
    lock_init(&lock, LOCK_RANK_ARENA);
    assert_int_equal(lock.rank, LOCK_RANK_ARENA);
    lock_acquire(&lock);
    assert_false(lock_try_acquire(&lock));
    pthread_t thread;
    bool got = true;
    assert_int_equal(pthread_create(&thread, NULL, try_once, &got), 0);
    pthread_join(thread, NULL);
    assert_false(got);
    lock_release(&lock);
    assert_true(lock_try_acquire(&lock));
    lock_release(&lock);
}

// The forking thread passes through the locks it holds; another thread waits as ever.
// By another thread, and with nobody in the lock's second word: a handler of a signal that came between the two words of
// lock_acquire() or lock_release() has to take it for its own thread's.
static void test_what_a_handler_may_have_interrupted(void **state) {
    (void)state;
    assert_false(lock_may_be_mine(&lock));
    lock_acquire(&lock);
    assert_true(lock_may_be_mine(&lock));
    atomic_store_relaxed(&lock.holder, lock_thread_mark() + 1);
    assert_false(lock_may_be_mine(&lock));
    atomic_store_relaxed(&lock.holder, 0);
    assert_false(lock_is_mine(&lock));
    assert_true(lock_may_be_mine(&lock));
    lock_release(&lock);
    assert_false(lock_may_be_mine(&lock));
}

static void test_fork_owner_passes_through(void **state) {
    (void)state;
    lock_acquire(&lock);
    lock_fork_begin();
    lock_acquire(&lock);
    lock_release(&lock);
    assert_int_not_equal(atomic_load_relaxed(&lock.state), 0);

    pthread_t thread;
    const uint64_t before = futex_calls();
    start_threads(&thread, 1, count_once);
    while (futex_calls() == before) {
        usleep(1000);
    }
    assert_int_equal(guarded, 0);
    lock_acquire(&lock);
    lock_release(&lock);

    lock_fork_end();
    lock_release(&lock);
    join_threads(&thread, 1);
    assert_int_equal(guarded, 1);
    assert_int_equal(atomic_load_relaxed(&lock.state), 0);
}

// The clock by which a thread that ends the process waits. The linker puts this between lock.c and linux.c.
static _Atomic(uint64_t) clock_ms, clock_calls;
static uint64_t clock_step_ms;

uint64_t __wrap_os_clock_ms_locked(void);
uint64_t __wrap_os_clock_ms_locked(void) {
    atomic_add_relaxed(&clock_calls, 1);
    return atomic_add_relaxed(&clock_ms, clock_step_ms);
}

static _Atomic(bool) is_held;

// Holds the lock until the other thread has waited for more than the thousand yields that were once the limit.
static void *hold_for_long(void *argument) {
    lock_acquire(&lock);
    atomic_store_release(&is_held, true);  // pairs with the loads of the test below
    while (atomic_load_relaxed(&clock_calls) < 5000) {
        usleep(1000);
    }
    guarded++;
    lock_release(&lock);
    return argument;
}

static void await_held(void) {
    while (!atomic_load_acquire(&is_held)) {
        usleep(1000);
    }
}

// As a thread that ends the process: first beside a holder that works, then holding the lock itself.
static void *abort_beside_a_holder(void *argument) {
    bool *as_expected = argument;
    *as_expected = !lock_is_aborting() && lock_abort_begin() && lock_is_aborting();
    lock_acquire(&lock);
    guarded *= 10;
    const uint64_t calls = atomic_load_relaxed(&clock_calls);
    lock_acquire(&lock);
    lock_release(&lock);
    *as_expected =
        *as_expected && atomic_load_relaxed(&clock_calls) == calls && !lock_abort_begin();
    return NULL;
}

static void test_who_ends_the_process_waits_for_others(void **state) {
    (void)state;
    guarded = 0;
    pthread_t threads[2];
    start_threads(threads, 1, hold_for_long);
    await_held();
    bool as_expected = false;
    assert_int_equal(pthread_create(&threads[1], NULL, abort_beside_a_holder, &as_expected), 0);
    join_threads(threads, 2);
    assert_true(as_expected);
    assert_int_equal(guarded, 10);
    assert_false(lock_is_aborting());
    assert_int_equal(atomic_load_relaxed(&lock.state), 0);
}

static void *abort_beside_a_stuck_holder(void *argument) {
    lock_abort_begin();
    lock_acquire(&lock);
    return argument;
}

// Two threads may end the process at once, the one with what the other waits for: a second is the most.
static void test_who_ends_the_process_waits_for_nobody_for_ever(void **state) {
    (void)state;
    clock_step_ms = 1;
    lock_acquire(&lock);
    pthread_t thread;
    start_threads(&thread, 1, abort_beside_a_stuck_holder);
    join_threads(&thread, 1);
    assert_in_range(atomic_load_relaxed(&clock_ms), 1000, 1010);
    lock_init(&lock, LOCK_RANK_HEAP);
}

static void *abort_and_be_forgotten(void *argument) {
    bool *first = argument;
    *first = lock_abort_begin();
    return NULL;
}

static void test_the_child_of_a_fork_forgets_who_else_ended_it(void **state) {
    (void)state;
    assert_true(lock_abort_begin());
    for (unsigned i = 0; i < 20; i++) {
        // Most have the thread pointer of the one before: it was forgotten with the process that it ended.
        pthread_t thread;
        bool first = false;
        assert_int_equal(pthread_create(&thread, NULL, abort_and_be_forgotten, &first), 0);
        join_threads(&thread, 1);
        assert_true(first);
        lock_abort_fork_child();
        assert_true(lock_is_aborting());
        assert_false(lock_abort_begin());
    }
}

static _Atomic(unsigned) with_handler, begun;

// All are there at once: a thread that came after another's end might have its thread pointer.
static void *begin_to_abort(void *argument) {
    if (lock_abort_begin()) {
        atomic_add_relaxed(&with_handler, 1);
    }
    atomic_add_relaxed(&begun, 1);
    while (atomic_load_relaxed(&begun) < 20) {
        usleep(1000);
    }
    return argument;
}

static void test_of_many_that_end_the_process_some_have_no_handler(void **state) {
    (void)state;
    pthread_t threads[20];
    start_threads(threads, 20, begin_to_abort);
    join_threads(threads, 20);
    assert_int_equal(atomic_load_relaxed(&with_handler), 8);
}

// As a fork that comes between: it has the C library's streams when it meets a lock whose holder ends the process.
static void *take_streams_and_lock(void *argument) {
    bool *kept = argument;
    streams_fork_lock();
    streams_fork_lock();
    lock_acquire(&lock);
    *kept = streams_are_mine();
    lock_release(&lock);
    streams_fork_unlock();
    streams_fork_unlock();
    return NULL;
}

static bool start_fork_and_await_sleep(pthread_t *thread, bool *kept) {
    const uint64_t before = futex_calls();
    assert_int_equal(pthread_create(thread, NULL, take_streams_and_lock, kept), 0);
    // It looks again and again, where the C library has such a list.
    while (futex_calls() < before + (atomic_load_relaxed(&streams_owner) != 0 ? 3 : 1)) {
        usleep(1000);
    }
    return atomic_load_relaxed(&streams_owner) != 0;
}

static void test_a_fork_keeps_the_streams_while_it_waits(void **state) {
    (void)state;
    pthread_t thread;
    bool kept = false;
    lock_acquire(&lock);
    const bool had = start_fork_and_await_sleep(&thread, &kept);
    lock_release(&lock);
    join_threads(&thread, 1);
    assert_int_equal(kept, had);
    assert_int_equal(atomic_load_relaxed(&streams_owner), 0);
    assert_int_equal(fflush(NULL), 0);
}

static void test_a_fork_gives_the_streams_back_to_who_ends_the_process(void **state) {
    (void)state;
    pthread_t thread;
    bool kept = true;
    lock_acquire(&lock);
    start_fork_and_await_sleep(&thread, &kept);
    assert_true(lock_abort_begin());
    // What a handler of SIGABRT may do: without end where the fork keeps them.
    alarm(20);
    assert_int_equal(fflush(NULL), 0);
    alarm(0);
    lock_release(&lock);
    join_threads(&thread, 1);
    assert_false(kept);
    assert_int_equal(atomic_load_relaxed(&streams_owner), 0);
    assert_int_equal(fflush(NULL), 0);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_at_a_time),
        cmocka_unit_test(test_waiters_sleep_and_are_woken),
        cmocka_unit_test(test_uncontended_costs_no_system_call),
        cmocka_unit_test(test_try_fails_while_held),
        cmocka_unit_test(test_what_a_handler_may_have_interrupted),
        cmocka_unit_test(test_fork_owner_passes_through),
        cmocka_unit_test(test_who_ends_the_process_waits_for_others),
        cmocka_unit_test(test_who_ends_the_process_waits_for_nobody_for_ever),
        cmocka_unit_test(test_the_child_of_a_fork_forgets_who_else_ended_it),
        cmocka_unit_test(test_a_fork_keeps_the_streams_while_it_waits),
        cmocka_unit_test(test_a_fork_gives_the_streams_back_to_who_ends_the_process),
        cmocka_unit_test(test_of_many_that_end_the_process_some_have_no_handler),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
