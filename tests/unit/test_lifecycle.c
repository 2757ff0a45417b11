// Threads come and go, and fork: whose cache is whose, and nothing is lost.
#include "isolate.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/alloc.h"
#include "base/bits.h"
#include "config/options.h"
#include "control/check.h"
#include "control/learner.h"
#include "control/stats.h"
#include "counted.h"
#include "fake_os.h"
#include "found_slab.h"
#include "heap/heap_check.h"
#include "heap/slab.h"
#include "space/arena.h"
#include "space/huge_pages.h"
#include "thread/fork.h"
#include "thread/lifecycle.h"

static void check(void) {
    assert_int_equal(check_all(), 0);
}

static struct heap *heap_of(const void *block) {
    return atomic_load_relaxed(&slab_of(block)->heap);
}

static void run_thread(void *(*work)(void *), void *argument) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, work, argument), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

// ---- Attaching ----

static void test_starts_once(void **state) {
    (void)state;
    lifecycle_start();
    const uint64_t maps = fake_os_calls(OS_MMAP);
    lifecycle_start();
    assert_int_equal(fake_os_calls(OS_MMAP), maps);
    assert_int_equal(late_heap()->id, 1);
    assert_null(lifecycle_caches());
    assert_int_equal(lifecycle_count(), 0);
}

static void test_attach_and_detach(void **state) {
    (void)state;
    struct thread_cache *cache = lifecycle_attach();
    assert_non_null(cache);
    assert_ptr_equal(thread_cache, cache);
    assert_ptr_equal(lifecycle_attach(), cache);
    assert_true(cache_is_real(cache));
    assert_int_equal(cache->heap.id, 2);
    assert_int_equal(lifecycle_count(), 1);
    assert_int_equal(lifecycle_count_in_use(), 1);
    lifecycle_detach();
    assert_ptr_equal(thread_cache, &cache_of_ended_thread);
    assert_null(lifecycle_attach());
    lifecycle_detach();
    assert_int_equal(lifecycle_count_in_use(), 0);
    assert_int_equal(lifecycle_count(), 1);
    check();
}

static void *attach(void *result) {
    *(struct thread_cache **)result = lifecycle_attach();
    return NULL;
}

// Huge pages come the later the more thread caches there are; one that passes to the next thread counts once.
static void test_thread_caches_count_for_huge_pages(void **state) {
    (void)state;
    lifecycle_start();
    learner_start();
    lifecycle_attach();
    for (unsigned i = 0; i < 3; i++) {
        struct thread_cache *second;
        run_thread(attach, &second);
    }
    assert_int_equal(lifecycle_count(), 2);
    const unsigned small = 2 * SMALL_HEAP_BYTES / SUPERSLAB_BYTES;
    for (unsigned i = 0; i <= small; i++) {
        uint64_t used;
        struct run *run = arena_take(SUPERSLAB_PAGES, PAGE_BYTES, false, &used);
        assert_non_null(run);
        memset((void *)run->start, 1, SUPERSLAB_BYTES);
        assert_int_equal(fake_os_wish((void *)run->start),
                         i < small ? OS_HUGE_PAGES_NEVER : OS_HUGE_PAGES_ALWAYS);
    }
}

static _Atomic unsigned attached_count;

void lifecycle_attached(void) {
    assert_true(cache_is_real(thread_cache));
    attached_count++;
}

extern char __libc_single_threaded __attribute__((weak));

static void test_every_cache_is_told_of(void **state) {
    (void)state;
    // A C library that does not tell whether there are other threads, or a sanitizer with one: there may be a cache.
    const bool may_have_none = &__libc_single_threaded != NULL && __libc_single_threaded;
    assert_int_equal(lifecycle_has_caches(), !may_have_none);
    attached_count = 0;
    lifecycle_attach();
    assert_int_equal(attached_count, 1);
    assert_true(lifecycle_has_caches());
    lifecycle_attach();
    assert_int_equal(attached_count, 1);
    struct thread_cache *second;
    run_thread(attach, &second);
    assert_non_null(second);
    assert_int_equal(attached_count, 2);
}

// Two keys of the program's: the first one's destructor sets the second, whose place in the round was passed already.
static pthread_key_t second_key, first_key;

static void set_second(void *block) {
    pthread_setspecific(second_key, block);
}

static void *leave_to_destructors(void *block) {
    pthread_setspecific(first_key, block);
    return NULL;
}

static void test_first_use_in_the_second_round_of_destructors(void **state) {
    (void)state;
    lifecycle_attach();
    assert_int_equal(pthread_key_create(&second_key, hakmem_dealloc), 0);
    assert_int_equal(pthread_key_create(&first_key, set_second), 0);
    for (unsigned i = 0; i < 20; i++) {
        run_thread(leave_to_destructors, hakmem_alloc(100));
        assert_int_equal(lifecycle_count_in_use(), 1);
    }
    pthread_key_delete(first_key);
    pthread_key_delete(second_key);
    check();
}

static void test_caches_pass_to_the_next_thread(void **state) {
    (void)state;
    struct thread_cache *mine = lifecycle_attach();
    struct thread_cache *first = NULL;
    run_thread(attach, &first);
    assert_ptr_not_equal(first, mine);
    for (unsigned i = 0; i < 100; i++) {
        struct thread_cache *next = NULL;
        run_thread(attach, &next);
        assert_ptr_equal(next, first);
    }
    assert_int_equal(lifecycle_count(), 2);
    assert_int_equal(lifecycle_count_in_use(), 1);
    assert_int_equal(counted(COUNTER_threads_attached), 102);
    assert_int_equal(counted(COUNTER_heaps_created), 2);
}

static pthread_barrier_t barrier;

static void *attach_and_wait(void *result) {
    attach(result);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return NULL;
}

static void test_the_latest_left_is_the_first_taken(void **state) {
    (void)state;
    lifecycle_start();
    enum { COUNT = 5 };
    pthread_t threads[COUNT];
    struct thread_cache *caches[COUNT];
    pthread_barrier_init(&barrier, NULL, COUNT + 1);
    for (unsigned i = 0; i < COUNT; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, attach_and_wait, &caches[i]), 0);
    }
    pthread_barrier_wait(&barrier);
    for (unsigned i = 0; i < COUNT; i++) {
        for (unsigned n = 0; n < i; n++) {
            assert_ptr_not_equal(caches[i], caches[n]);
            assert_int_not_equal(caches[i]->heap.id, caches[n]->heap.id);
        }
    }
    assert_int_equal(lifecycle_count_in_use(), COUNT);
    pthread_barrier_wait(&barrier);
    for (unsigned i = 0; i < COUNT; i++) {
        pthread_join(threads[i], NULL);
    }
    unsigned walked = 0;
    for (struct thread_cache *cache = lifecycle_caches(); cache != NULL; cache = cache->next_all) {
        walked++;
        assert_int_equal(atomic_load_relaxed(&cache->state), CACHE_UNUSED);
    }
    assert_int_equal(walked, COUNT);
    lifecycle_attach();
    assert_int_equal(lifecycle_count(), COUNT);
}

// With many threads all caches together may hold what the machine's processors need.
static void test_caches_of_a_large_machine(void **state) {
    (void)state;
    lifecycle_start();
    fake_os_set_processors(100);
    const uint64_t initial = options.cache_total_bytes;
    enum { COUNT = CACHES_OF_A_LARGE_MACHINE };
    pthread_t threads[COUNT];
    struct thread_cache *caches[COUNT];
    for (unsigned count = COUNT - 1; count <= COUNT; count++) {
        pthread_barrier_init(&barrier, NULL, count + 1);
        for (unsigned i = 0; i < count; i++) {
            assert_int_equal(pthread_create(&threads[i], NULL, attach_and_wait, &caches[i]), 0);
        }
        pthread_barrier_wait(&barrier);
        assert_int_equal(lifecycle_count(), count);
        assert_int_equal(options.cache_total_bytes, count < COUNT ? initial : 100 * MIB);
        pthread_barrier_wait(&barrier);
        for (unsigned i = 0; i < count; i++) {
            pthread_join(threads[i], NULL);
        }
        pthread_barrier_destroy(&barrier);
    }
    check();
}

// ---- A thread's end ----

struct made {
    void *blocks[200];
    unsigned count;
    struct thread_cache *cache;
};

static void *allocate_some(void *argument) {
    struct made *made = argument;
    for (made->count = 0; made->count < ARRAY_COUNT(made->blocks); made->count++) {
        const size_t bytes = 16 + made->count * 20;
        void *block = hakmem_alloc(bytes);
        require(block != NULL);
        memset(block, (int)made->count, bytes);
        made->blocks[made->count] = block;
    }
    // Half of them end up in the cache, and are given back at the end.
    while (made->count > ARRAY_COUNT(made->blocks) / 2) {
        hakmem_dealloc(made->blocks[--made->count]);
    }
    made->cache = thread_cache;
    return NULL;
}

static uint64_t used_blocks(const struct heap *heap) {
    uint64_t used = 0;
    for (uint64_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        struct heap_class_totals totals;
        heap_class_totals(heap, i, &totals);
        used += totals.used_blocks;
    }
    return used;
}

static void check_contents(const struct made *made) {
    for (unsigned i = 0; i < made->count; i++) {
        const unsigned char *block = made->blocks[i];
        for (size_t at = 0; at < 16 + i * 20; at++) {
            assert_int_equal(block[at], i);
        }
    }
}

static void test_ended_thread_leaves_only_what_is_in_use(void **state) {
    (void)state;
    lifecycle_attach();
    struct made made;
    run_thread(allocate_some, &made);
    check();
    assert_int_equal(used_blocks(&made.cache->heap), made.count);
    check_contents(&made);
    // What it left is freed from here.
    for (unsigned i = 0; i < made.count; i++) {
        hakmem_dealloc(made.blocks[i]);
    }
    cache_empty(thread_cache);
    assert_true(heap_has_remote(&made.cache->heap));
    // And taken back by its successor.
    struct made next;
    run_thread(allocate_some, &next);
    assert_ptr_equal(next.cache, made.cache);
    assert_int_equal(used_blocks(&made.cache->heap), next.count);
    check_contents(&next);
    check();
}

static void *free_it(void *block) {
    hakmem_dealloc(block);
    return NULL;
}

static void test_ended_thread_frees_to_others(void **state) {
    (void)state;
    void *block = hakmem_alloc(100);
    run_thread(free_it, block);
    // It went home at once, as the first operations of any class, and stays for the owner to collect.
    assert_true(heap_has_remote(&thread_cache->heap));
    lock_acquire(&thread_cache->heap.lock);
    assert_int_equal(heap_collect(&thread_cache->heap), 1);
    lock_release(&thread_cache->heap.lock);
    check();
}

static void *end_with_remote_frees(void *argument) {
    struct thread_cache **result = argument;
    void *block = hakmem_alloc(100);
    *result = thread_cache;
    struct run *slab = arena_find((uintptr_t)block);
    heap_publish(slab, 0, bit((unsigned)slab_index(slab, (uintptr_t)block)));
    require(heap_has_remote(&thread_cache->heap));
    return NULL;
}

static void test_ending_thread_takes_back_what_others_freed(void **state) {
    (void)state;
    struct thread_cache *cache = NULL;
    run_thread(end_with_remote_frees, &cache);
    assert_false(heap_has_remote(&cache->heap));
    assert_int_equal(used_blocks(&cache->heap), 0);
    check();
}

// A destructor of a thread-specific key runs after or before the allocator's own.
static pthread_key_t keys[3];

static void allocate_in_destructor(void *value) {
    hakmem_dealloc(value);
    void *block = hakmem_alloc(500);
    require(block != NULL);
    memset(block, 1, 500);
    hakmem_dealloc(block);
}

static void *set_keys(void *argument) {
    for (unsigned i = 0; i < ARRAY_COUNT(keys); i++) {
        pthread_setspecific(keys[i], hakmem_alloc(64));
    }
    return argument;
}

static void test_key_destructors_find_a_heap(void **state) {
    (void)state;
    pthread_key_create(&keys[0], allocate_in_destructor);
    lifecycle_attach();
    pthread_key_create(&keys[1], allocate_in_destructor);
    pthread_key_create(&keys[2], allocate_in_destructor);
    for (unsigned i = 0; i < 50; i++) {
        run_thread(set_keys, NULL);
    }
    check();
    assert_int_equal(lifecycle_count(), 2);
    assert_int_equal(counted(COUNTER_late_operations), 0);
    struct stats stats;
    stats_collect(&stats);
    assert_int_equal(stats.gauge[GAUGE_live_blocks], 0);
}

static void *freed_first;

static void *free_then_set_keys(void *argument) {
    hakmem_dealloc(freed_first);
    return set_keys(argument);
}

// A thread whose first call frees what it was given is at work, and no destructor of one that ends.
static void test_destructors_find_the_cache_of_who_freed_first(void **state) {
    (void)state;
    pthread_key_create(&keys[0], allocate_in_destructor);
    assert_non_null(lifecycle_attach());
    pthread_key_create(&keys[1], allocate_in_destructor);
    pthread_key_create(&keys[2], allocate_in_destructor);
    for (unsigned i = 0; i < 50; i++) {
        freed_first = hakmem_alloc(64);
        run_thread(free_then_set_keys, NULL);
    }
    check();
    assert_int_equal(lifecycle_count(), 2);
    assert_int_equal(counted(COUNTER_late_operations), 0);
}

// ---- Without a cache ----

static void test_late_heap_serves_an_ended_thread(void **state) {
    (void)state;
    void *earlier = hakmem_alloc(64);
    struct thread_cache *cache = thread_cache;
    options.retain_slabs = 100;
    lifecycle_detach();
    enum { COUNT = 300 };
    static unsigned char *blocks[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        const size_t bytes = i / 100 * 370;
        blocks[i] = hakmem_alloc(bytes);
        assert_non_null(blocks[i]);
        assert_ptr_equal(heap_of(blocks[i]), late_heap());
        memset(blocks[i], (int)i, bytes);
    }
    check();
    hakmem_dealloc(earlier);
    assert_true(heap_has_remote(&cache->heap));
    for (unsigned i = 0; i < COUNT; i++) {
        const size_t bytes = i / 100 * 370;
        assert_true(bytes == 0 ||
                    (blocks[i][0] == (unsigned char)i && blocks[i][bytes - 1] == (unsigned char)i));
        hakmem_dealloc(blocks[i]);
    }
    assert_int_equal(counted(COUNTER_late_operations), 2 * COUNT + 1);
    // What was freed serves the next request.
    const uint64_t slabs = counted(COUNTER_slabs_created);
    for (unsigned i = 0; i < COUNT; i++) {
        assert_non_null(hakmem_alloc(i / 100 * 370));
    }
    assert_int_equal(counted(COUNTER_slabs_created), slabs);
    void *large = hakmem_alloc(100000);
    assert_non_null(large);
    large = hakmem_resize(large, 5 * MIB);
    assert_non_null(large);
    hakmem_dealloc(large);
    check();
}

// As glibc does behind a thread's last destructor; through it no program can.
static void block_all_signals(bool blocked) {
    const uint64_t all = UINT64_MAX;
    require(syscall(SYS_rt_sigprocmask, blocked ? SIG_BLOCK : SIG_UNBLOCK, &all, NULL,
                    sizeof all) == 0);
}

struct freed {
    void *blocks[2];
    struct thread_cache *caches[2];  // behind each free
};

static void *free_at_the_end_and_before(void *argument) {
    struct freed *freed = argument;
    block_all_signals(true);
    hakmem_dealloc(freed->blocks[0]);
    freed->caches[0] = thread_cache;
    block_all_signals(false);
    hakmem_dealloc(freed->blocks[1]);
    freed->caches[1] = thread_cache;
    return NULL;
}

static void test_a_free_behind_the_last_destructor(void **state) {
    (void)state;
    struct freed freed = {.blocks = {hakmem_alloc(64), hakmem_alloc(64)}};
    run_thread(free_at_the_end_and_before, &freed);
    assert_ptr_equal(freed.caches[0], &cache_of_new_thread);
    assert_true(cache_is_real(freed.caches[1]));
    assert_int_equal(counted(COUNTER_late_operations), 1);
    assert_int_equal(lifecycle_count(), 2);
    check();
}

static void test_late_misuse(void **state) {
    (void)state;
    lifecycle_attach();
    options.abort = 0;
    lifecycle_detach();
    char *block = hakmem_alloc(64);
    hakmem_alloc(64);
    stderr_begin();
    hakmem_dealloc(block + 16);
    hakmem_dealloc(block);
    hakmem_dealloc(block);
    int local = 0;
    hakmem_dealloc(&local);
    assert_non_null(strstr(stderr_end(), "double free: 0x"));
    assert_int_equal(counted(COUNTER_misuses), 3);
    check();
}

static void test_without_memory_for_a_cache(void **state) {
    (void)state;
    lifecycle_start();
    // The thread's cache cannot be made, then it can.
    fake_os_fail(OS_MMAP, 1, true);
    assert_null(lifecycle_attach());
    assert_ptr_equal(thread_cache, &cache_of_new_thread);
    assert_null(late_alloc(SIZE_CLASS_64));
    fake_os_fail(OS_MMAP, 1, false);
    void *block = hakmem_alloc(64);  // attaching fails, the late heap serves
    assert_non_null(block);
    assert_ptr_equal(heap_of(block), late_heap());
    fake_os_mend();
    assert_non_null(lifecycle_attach());
    hakmem_dealloc(block);
    check();
}

// ---- Threads at once ----

enum { THREAD_COUNT = 4 };

static void *live_short_lives(void *argument) {
    struct made made;
    return allocate_some(&made) == NULL ? argument : NULL;
}

static void *start_short_lives(void *argument) {
    for (unsigned i = 0; i < 40; i++) {
        pthread_t thread;
        require(pthread_create(&thread, NULL, live_short_lives, NULL) == 0);
        require(pthread_join(thread, NULL) == 0);
    }
    return argument;
}

static void test_threads_start_and_end_at_once(void **state) {
    (void)state;
    pthread_t threads[THREAD_COUNT];
    for (unsigned i = 0; i < THREAD_COUNT; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, start_short_lives, NULL), 0);
    }
    for (unsigned i = 0; i < THREAD_COUNT; i++) {
        pthread_join(threads[i], NULL);
    }
    check();
    assert_in_range(lifecycle_count(), 1, THREAD_COUNT);
    assert_int_equal(lifecycle_count_in_use(), 0);
    assert_int_equal(counted(COUNTER_threads_attached), THREAD_COUNT * 40);
}

// ---- fork ----

static int in_fork_child(int (*work)(void)) {
    fork_prepare();
    const pid_t child = fork();
    if (child == 0) {
        fork_child();
        _exit(work());
    }
    fork_parent();
    int status = -1;
    assert_true(waitpid(child, &status, 0) == child);
    return status;
}

static void *block_of_parent;

static int use_heap_in_child(void) {
    require(check_all() == 0);
    require(thread_cache->thread_id == os_thread_id());
    for (unsigned i = 0; i < 1000; i++) {
        void *block = hakmem_alloc(i);
        require(block != NULL);
        hakmem_dealloc(block);
    }
    hakmem_dealloc(block_of_parent);
    require(check_all() == 0);
    return 0;
}

static void test_fork_of_one_thread(void **state) {
    (void)state;
    block_of_parent = hakmem_alloc(100);
    assert_int_equal(in_fork_child(use_heap_in_child), 0);
    hakmem_dealloc(block_of_parent);
    check();
}

static int end_start_in_child(void) {
    lock_release(&registry_state.lock);
    hakmem_dealloc(hakmem_alloc(100));
    require(check_all() == 0);
    return 0;
}

// A handler of a signal came in the middle of the process's very first call.
static void test_fork_amid_the_start(void **state) {
    (void)state;
    alarm(300);
    lock_acquire(&registry_state.lock);
    assert_int_equal(in_fork_child(end_start_in_child), 0);
    lock_release(&registry_state.lock);
    hakmem_dealloc(hakmem_alloc(100));
    check();
}

static struct made others;

static void *allocate_and_wait(void *argument) {
    allocate_some(argument);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return NULL;
}

static int use_orphan_in_child(void) {
    require(check_all() == 0);
    // The other thread is not here: its cache passes to the next one, without what was in it.
    require(atomic_load_relaxed(&others.cache->state) == CACHE_ORPHAN);
    // Nor does it go on emptying it a part at a time.
    require(others.cache->heap.budget_bytes == HEAP_BUDGET_ALL);
    require(lifecycle_count_in_use() == 1);
    const uint64_t used = used_blocks(&others.cache->heap);
    require(used >= others.count);
    struct thread_cache *mine = thread_cache;
    thread_cache = (struct thread_cache *)(uintptr_t)&cache_of_new_thread;
    require(lifecycle_attach() == others.cache);
    require(check_all() == 0);
    for (uint64_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        require(cache_block_count(thread_cache, i) == 0);
    }
    require(used_blocks(&others.cache->heap) == used);
    for (unsigned i = 0; i < others.count; i++) {
        require(*(unsigned char *)others.blocks[i] == (unsigned char)i);
        hakmem_dealloc(others.blocks[i]);
    }
    cache_empty(thread_cache);
    require(used_blocks(&others.cache->heap) == used - others.count);
    require(check_all() == 0);
    thread_cache = mine;
    return use_heap_in_child();
}

static void test_fork_beside_another_thread(void **state) {
    (void)state;
    block_of_parent = hakmem_alloc(100);
    pthread_t thread;
    pthread_barrier_init(&barrier, NULL, 2);
    assert_int_equal(pthread_create(&thread, NULL, allocate_and_wait, &others), 0);
    pthread_barrier_wait(&barrier);
    others.cache->heap.budget_bytes = 8 * MIB;
    assert_int_equal(in_fork_child(use_orphan_in_child), 0);
    others.cache->heap.budget_bytes = HEAP_BUDGET_ALL;
    // The parent's other thread goes on as if nothing had been.
    check_contents(&others);
    assert_int_equal(atomic_load_relaxed(&others.cache->state), CACHE_IN_USE);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    check();
}

static bool forks_when_adjusted;

void __real_cache_adjust(struct thread_cache *cache);
void __wrap_cache_adjust(struct thread_cache *cache);

static int keep_own_cache_in_child(void) {
    require(lifecycle_count_in_use() == 1);
    struct thread_cache *mine = thread_cache;
    require(atomic_load_relaxed(&mine->state) == CACHE_IN_USE);
    // As another thread.
    thread_cache = (struct thread_cache *)(uintptr_t)&cache_of_new_thread;
    require(lifecycle_attach() != mine);
    thread_cache = mine;
    return use_heap_in_child();
}

void __wrap_cache_adjust(struct thread_cache *cache) {
    if (forks_when_adjusted) {
        forks_when_adjusted = false;
        assert_int_equal(in_fork_child(keep_own_cache_in_child), 0);
    }
    __real_cache_adjust(cache);
}

// A handler of a signal comes while a thread gets its cache, and forks: in the child it has it as well, and nobody else.
static void test_fork_amid_an_attach(void **state) {
    (void)state;
    block_of_parent = hakmem_alloc(100);
    forks_when_adjusted = true;
    run_thread(allocate_some, &others);
    assert_false(forks_when_adjusted);
    check();
}

// Allocating between prepare and the fork itself, as other libraries' handlers do.
static void test_fork_handlers_may_allocate(void **state) {
    (void)state;
    pthread_t thread;
    pthread_barrier_init(&barrier, NULL, 2);
    assert_int_equal(pthread_create(&thread, NULL, allocate_and_wait, &others), 0);
    pthread_barrier_wait(&barrier);
    fork_prepare();
    // The heap that this thread has from now on is as little to be had by others as theirs are.
    struct heap *heap = &lifecycle_attach()->heap;
    assert_int_not_equal(atomic_load_relaxed(&heap->lock.state), 0);
    for (unsigned i = 0; i < 100; i++) {
        void *block = hakmem_alloc(i * 1000);
        assert_non_null(block);
        hakmem_dealloc(block);
    }
    fork_parent();
    assert_int_equal(atomic_load_relaxed(&heap->lock.state), 0);
    check();
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
}

// A handler of another library forks itself, behind this one's: the locks stay the first fork's.
static void test_a_fork_within_a_fork(void **state) {
    (void)state;
    block_of_parent = hakmem_alloc(100);
    pthread_t thread;
    pthread_barrier_init(&barrier, NULL, 2);
    assert_int_equal(pthread_create(&thread, NULL, allocate_and_wait, &others), 0);
    pthread_barrier_wait(&barrier);
    fork_prepare();
    assert_int_equal(in_fork_child(use_orphan_in_child), 0);
    assert_true(lock_passes_for_fork());
    assert_int_not_equal(atomic_load_relaxed(&others.cache->heap.lock.state), 0);
    // The child of the first one forgets the other thread as well.
    assert_int_equal(in_fork_child(use_orphan_in_child), 0);
    fork_parent();
    assert_false(lock_passes_for_fork());
    assert_int_equal(atomic_load_relaxed(&others.cache->heap.lock.state), 0);
    check_contents(&others);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    check();
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_starts_once),
        cmocka_unit_test(test_attach_and_detach),
        cmocka_unit_test(test_thread_caches_count_for_huge_pages),
        cmocka_unit_test(test_every_cache_is_told_of),
        cmocka_unit_test(test_first_use_in_the_second_round_of_destructors),
        cmocka_unit_test(test_caches_pass_to_the_next_thread),
        cmocka_unit_test(test_the_latest_left_is_the_first_taken),
        cmocka_unit_test(test_caches_of_a_large_machine),
        cmocka_unit_test(test_ended_thread_leaves_only_what_is_in_use),
        cmocka_unit_test(test_ended_thread_frees_to_others),
        cmocka_unit_test(test_ending_thread_takes_back_what_others_freed),
        cmocka_unit_test(test_key_destructors_find_a_heap),
        cmocka_unit_test(test_destructors_find_the_cache_of_who_freed_first),
        cmocka_unit_test(test_late_heap_serves_an_ended_thread),
        cmocka_unit_test(test_a_free_behind_the_last_destructor),
        cmocka_unit_test(test_late_misuse),
        cmocka_unit_test(test_without_memory_for_a_cache),
        cmocka_unit_test(test_threads_start_and_end_at_once),
        cmocka_unit_test(test_fork_of_one_thread),
        cmocka_unit_test(test_fork_amid_the_start),
        cmocka_unit_test(test_fork_beside_another_thread),
        cmocka_unit_test(test_fork_amid_an_attach),
        cmocka_unit_test(test_fork_handlers_may_allocate),
        cmocka_unit_test(test_a_fork_within_a_fork),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
