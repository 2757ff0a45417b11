// The C library is not entered while a lock is held: a function that somebody replaced or hooked may
// allocate. The linker puts this file between the core and each function of libc that is more than
// arithmetic on memory (tests/abi/imports.txt has them all), and between it and the notes of which locks a
// thread holds, which builds with internal checks have.
#include "isolate.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "api/alloc.h"
#include "api/start.h"
#include "config/options.h"
#include "control/check.h"
#include "control/leaks.h"
#include "control/report.h"
#include "control/stats.h"
#include "heap/guarded.h"
#include "os/lock.h"
#include "thread/maintenance.h"

static __thread unsigned held[LOCK_RANK_COUNT];
static unsigned long entered;        // calls of libc
static unsigned long entered_held;   // of these, with a lock held
static unsigned ranks_seen;          // bits of the ranks that were held
static const char *first_violation;  // the function

// As lock.c: while a fork is under way locks are passed through, and nothing is noted.
void __real_lock_note_held(const struct lock *lock);
void __wrap_lock_note_held(const struct lock *lock) {
    if (!lock_passes_for_fork()) {
        held[lock->rank]++;
        __atomic_fetch_or(&ranks_seen, 1u << lock->rank, __ATOMIC_RELAXED);
    }
    __real_lock_note_held(lock);
}

void __real_lock_note_released(const struct lock *lock);
void __wrap_lock_note_released(const struct lock *lock) {
    if (held[lock->rank] != 0) {
        held[lock->rank]--;
    }
    __real_lock_note_released(lock);
}

static unsigned highest_held(void) {
    unsigned rank = LOCK_RANK_COUNT;
    while (rank > 0 && held[rank - 1] == 0) {
        rank--;
    }
    return rank == 0 ? 0 : rank - 1;
}

static void enter(const char *function) {
    __atomic_fetch_add(&entered, 1, __ATOMIC_RELAXED);
    if (highest_held() != 0) {
        if (__atomic_fetch_add(&entered_held, 1, __ATOMIC_RELAXED) == 0) {
            first_violation = function;
        }
    }
}

#define WRAPPED(type, name, parameters, arguments) \
    type __real_##name parameters;                 \
    type __wrap_##name parameters;                 \
    type __wrap_##name parameters {                \
        enter(#name);                              \
        return __real_##name arguments;            \
    }

WRAPPED(int, clock_gettime, (clockid_t clock, struct timespec *time), (clock, time))
WRAPPED(unsigned long, getauxval, (unsigned long type), (type))
WRAPPED(int, pthread_key_create, (pthread_key_t * key, void (*at_exit)(void *)), (key, at_exit))
WRAPPED(int, pthread_key_delete, (pthread_key_t key), (key))
WRAPPED(int, pthread_setspecific, (pthread_key_t key, const void *value), (key, value))
WRAPPED(int, pthread_atfork, (void (*prepare)(void), void (*parent)(void), void (*child)(void)),
        (prepare, parent, child))
WRAPPED(int, sigaction, (int number, const struct sigaction *new, struct sigaction *old),
        (number, new, old))
WRAPPED(int, dl_iterate_phdr, (int (*visit)(struct dl_phdr_info *, size_t, void *), void *argument),
        (visit, argument))
WRAPPED(const void *, _Unwind_Find_FDE, (const void *pc, void *bases), (pc, bases))
WRAPPED(int, _dl_find_object, (void *address, struct dl_find_object *found), (address, found))
WRAPPED(int, __cxa_atexit, (void (*function)(void *), void *argument, void *handle),
        (function, argument, handle))

// ---- A load that takes every lock ----

static void *use_everything(void *argument) {
    uint64_t random = (uintptr_t)argument | 1;
    enum { COUNT = 200 };
    void *blocks[COUNT] = {NULL};
    for (unsigned i = 0; i < 20000; i++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
        const unsigned at = (unsigned)(random >> 33) % COUNT;
        const unsigned what = (unsigned)(random >> 20) % 64;
        const size_t bytes = what == 0   ? 3 * MIB
                             : what == 1 ? 200000
                             : what < 8  ? 5000
                                         : random >> 48 & 511;
        if (what % 4 == 3) {
            void *moved = hakmem_resize(blocks[at], bytes + 1);
            blocks[at] = moved;
            continue;
        }
        hakmem_dealloc(blocks[at]);
        blocks[at] = what % 4 == 0   ? hakmem_alloc_zeroed(bytes)
                     : what % 4 == 1 ? hakmem_alloc_aligned(64, bytes)
                                     : hakmem_alloc(bytes);
        require(blocks[at] != NULL);
    }
    // Blocks that another thread frees.
    void **left = hakmem_alloc(sizeof blocks);
    memcpy(left, blocks, sizeof blocks);
    return left;
}

static void free_left(void **left) {
    for (unsigned i = 0; i < 200; i++) {
        hakmem_dealloc(left[i]);
    }
    hakmem_dealloc(left);
}

static void run_threads(void) {
    pthread_t threads[3];
    for (uintptr_t i = 0; i < ARRAY_COUNT(threads); i++) {
        require(pthread_create(&threads[i], NULL, use_everything, (void *)(i * 2 + 3)) == 0);
    }
    free_left(use_everything((void *)1));
    for (unsigned i = 0; i < ARRAY_COUNT(threads); i++) {
        void *left;
        require(pthread_join(threads[i], &left) == 0);
        free_left(left);
    }
}

static void look_at_everything(void) {
    struct stats stats;
    stats_collect(&stats);
    require(check_all() == 0);
    maintenance_reclaim();
    report_refresh();
    leaks_report(2);
}

// Some of it is noticed later.
static void misuse_everything(void) {
    options.abort = 0;
    char *small = hakmem_alloc(100);
    char *large = hakmem_alloc(100000);
    hakmem_dealloc(small + 16);
    hakmem_dealloc(large + 16);
    hakmem_dealloc(large);
    hakmem_dealloc(large);
    hakmem_dealloc(&small);
    hakmem_dealloc(small);
    hakmem_dealloc(small);
}

static int run_everything(const void *context) {
    (void)context;
    run_threads();
    look_at_everything();
    misuse_everything();
    const pid_t child = fork();
    if (child == 0) {
        run_threads();
        _exit(entered_held != 0 ? 1 : 0);
    }
    int status;
    require(waitpid(child, &status, 0) == child);
    run_threads();
    start_finish();
    if (entered_held != 0 || status != 0) {
        dprintf(2, "libc was entered %lu times under a lock, first through %s (fork: %d)\n",
                entered_held, first_violation, status);
        return 1;
    }
    // It was looked at, and with locks held.
    require(entered > 10);
    unsigned wanted = 0;
    for (unsigned rank = LOCK_RANK_HUGE; rank < LOCK_RANK_COUNT; rank++) {
        wanted |= rank == LOCK_RANK_GUARDED && !guarded_is_on() ? 0 : 1u << rank;
    }
    require((ranks_seen & wanted) == wanted);
    return 0;
}

static void test_load(void **state) {
    (void)state;
    assert_int_equal(run_scenario(run_everything, NULL), 0);
}

// The control: a call under each of the locks is noticed.
static int enter_under_each(const void *context) {
    (void)context;
    for (unsigned rank = LOCK_RANK_HUGE; rank < LOCK_RANK_COUNT; rank++) {
        struct lock lock = LOCK_INITIAL(rank);
        const unsigned long before = entered_held;
        lock_acquire(&lock);
        __wrap_getauxval(AT_PAGESZ);
        lock_release(&lock);
        require(entered_held == before + 1);
        __wrap_getauxval(AT_PAGESZ);
        require(entered_held == before + 1);
    }
    return 0;
}

static void test_control(void **state) {
    (void)state;
    assert_int_equal(run_scenario(enter_under_each, NULL), 0);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load),
        cmocka_unit_test(test_control),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
