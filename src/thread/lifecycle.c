#include "thread/lifecycle.h"

#include <string.h>
#include <sys/auxv.h>

#include "base/check.h"
#include "config/options.h"
#include "config/profile.h"
#include "heap/misuse.h"
#include "heap/slab.h"
#include "heap/slack.h"
#include "os/events.h"
#include "os/file.h"
#include "os/os.h"
#include "space/metadata.h"
#include "thread/holder.h"
#include "thread/knobs.h"
#include "thread/migration.h"
#include "thread/relief.h"
#include "thread/research.h"

extern char **environ;

// Key destructors run in rounds, in no order (PTHREAD_DESTRUCTOR_ITERATIONS of them, 4 in glibc).
// The cache asks to be called again this many times, so that other destructors still find it.
#define EXIT_ROUNDS 2
// Of a thread that got its cache to free a block with: it may be in the last of these rounds.
#define EXIT_ROUNDS_OF_FREE (EXIT_ROUNDS + 1)

static struct registry registry = {.lock = LOCK_INITIAL(LOCK_RANK_REGISTRY)};
INSPECTABLE(registry, registry_state);

struct thread_cache cache_of_ended_thread;

// The heap of threads without a cache: id 1, the first.
#define LATE_HEAP_ID 1
static struct heap shared_late_heap;
INSPECTABLE(shared_late_heap, late_heap_state);

static void on_thread_exit(void *value) {
    struct thread_cache *cache = value;
    if (cache != thread_cache) {
        return;
    }
    if (cache->exit_rounds < EXIT_ROUNDS) {
        cache->exit_rounds++;
        pthread_setspecific(registry.exit_key, cache);
        return;
    }
    lifecycle_detach();
    lock_abort_end();
}

static void bring_slab(struct thread_cache *cache, uint64_t class_index) {
    migration_bring(lifecycle_caches(), cache, class_index);
}

// In the code itself: a constant would be a page more that every start touches.
static bool is_for_hakmem(const char *variable) {
    return variable[0] == 'H' && variable[1] == 'A' && variable[2] == 'K' && variable[3] == 'M' &&
           variable[4] == 'E' && variable[5] == 'M' && variable[6] == '_';
}

// Whether any option is set. Without one the options are what they are from the start, and their parser stays
// untouched.
static bool are_options_set(char *const *envp) {
    while (envp != NULL && *envp != NULL && !is_for_hakmem(*envp)) {
        envp++;
    }
    return envp != NULL && *envp != NULL;
}

// Of glibc's loader: where the kernel put the number of arguments, the arguments, NULL, and the environment.
extern void *__libc_stack_end __attribute__((weak));

// glibc tells of the environment when it has started itself: too late for a resolver that allocates while the loader
// relocates the program.
static char **environment(void) {
    if (environ != NULL || &__libc_stack_end == NULL || __libc_stack_end == NULL) {
        return environ;
    }
    char **words = __libc_stack_end;
    return words + 1 + *(const long *)(const void *)words + 1;
}

void lifecycle_start(void) {
    if (atomic_load_acquire(&registry.started)) {
        return;
    }
    // Of libc before the lock, whose functions somebody may hook; the size of a page is remembered.
    const bool is_secure = getauxval(AT_SECURE) != 0;
    const ElfW(Phdr) *headers = (const void *)getauxval(AT_PHDR);
    const size_t header_count = getauxval(AT_PHNUM);
    os_page_bytes();
    pthread_key_t key;
    bool has_key = pthread_key_create(&key, on_thread_exit) == 0;
    lock_acquire(&registry.lock);
    if (!atomic_load_relaxed(&registry.started)) {
        char **const envp = environment();
        if (!registry.has_no_options && are_options_set(envp)) {
            profile_set_program(headers, header_count);
            profile_accept = size_class_load;
            profile_block_bytes = size_class_block_bytes;
            profile_find_library = os_file_of_library;
            options_load(envp, is_secure);
        }
        knobs_start();
        page_map_init();
        misuse_holder = holder_find;
        if (options.slack_check) {
            slack_start();
        }
        cache_slab_bringer = bring_slab;
        heap_init(&shared_late_heap, LATE_HEAP_ID);
        registry.last_id = LATE_HEAP_ID;
        registry.has_key = has_key;
        registry.exit_key = has_key ? key : registry.exit_key;
        has_key = false;
        atomic_store_release(&registry.started, true);
    }
    lock_release(&registry.lock);
    if (unlikely(has_key)) {
        pthread_key_delete(key);  // another thread was first
    }
}

bool lifecycle_is_starting(void) {
    return !atomic_load_acquire(&registry.started) && lock_may_be_mine(&registry.lock);
}

bool lifecycle_start_if_asked(void) {
    if (are_options_set(environ)) {
        lifecycle_start();
        return true;
    }
    lock_acquire(&registry.lock);
    registry.has_no_options = true;
    lock_release(&registry.lock);
    return false;
}

static struct thread_cache *make_cache(void) {
    if (registry.last_id == HEAP_ID_MAX) {
        return NULL;
    }
    struct thread_cache *cache = metadata_alloc(sizeof *cache);
    if (cache == NULL) {
        return NULL;
    }
    cache_init(cache, ++registry.last_id);
    // As every lock while a fork is under way: its end gives them all back, and nobody else may have one by then.
    if (unlikely(lock_passes_for_fork())) {
        lock_acquire(&cache->heap.lock);
    }
    cache->next_all = atomic_load_relaxed(&registry.all);
    atomic_store_release(&registry.all, cache);
    atomic_bump_owned(&registry.count, 1u);
    if (unlikely(lifecycle_count() == CACHES_OF_A_LARGE_MACHINE)) {
        capacity_fit_to_processors();
    }
    count_event(COUNTER_heaps_created, 1);
    return cache;
}

// The calling thread has the cache from now on. The registry's lock is held.
static void claim(struct thread_cache *cache) {
    cache->thread_id = os_thread_id();
    cache->process_id = (uint32_t)os_process_id();
    cache->thread_pointer = os_thread_pointer();
    cache->heap.purge_delay.asked_cpu_ns = 0;
    atomic_store_release(&cache->state, CACHE_IN_USE);
}

// A thread may end and not give its cache back: its first call came in the last of the C library's rounds of key destructors, there was no
// key left, or it ended by a system call of its own. Before a cache is made, so many of those in use are looked at.
#define LOOKS_FOR_GONE 2

// Only of those that a thread of this process asked for: not between vfork and exec, of which side ever, nor in a child whose fork ran no
// handlers. What the thread was about is known once it is gone.
static bool is_abandoned(const struct thread_cache *cache, uint64_t process_id) {
    return atomic_load_relaxed(&((struct thread_cache *)(uintptr_t)cache)->state) == CACHE_IN_USE &&
           cache->process_id == process_id && os_thread_is_gone(process_id, cache->thread_id) &&
           !cache->entered;
}

// A cache whose thread is gone, to be used as it is; it counts as in use. NULL when none was found. What the thread wrote is visible: it
// went through the kernel to its end, and so did this thread to ask. One that was being changed stays as it is for good.
static struct thread_cache *take_abandoned(void) {
    const uint64_t process_id = os_process_id();
    struct thread_cache *cache = registry.abandoned_cursor;
    for (unsigned i = 0; i < LOOKS_FOR_GONE; i++) {
        cache = cache == NULL || cache->next_all == NULL ? lifecycle_caches() : cache->next_all;
        registry.abandoned_cursor = cache;
        if (cache == NULL) {
            return NULL;
        }
        if (is_abandoned(cache, process_id)) {
            return cache;
        }
    }
    return NULL;
}

// Off the list of the caches that keep blocks, where `link` points at it.
static struct thread_cache *unlink_kept(struct thread_cache **link) {
    struct thread_cache *cache = *link;
    *link = cache->next_unused;
    registry.kept_bytes -= cache->capacity_bytes;
    atomic_bump_owned(&registry.kept_count, (uint32_t)-1);
    return cache;
}

static void push_unused(struct thread_cache *cache) {
    atomic_store_relaxed(&cache->state, CACHE_UNUSED);
    cache->next_unused = registry.unused;
    registry.unused = cache;
}

static void push_kept(struct thread_cache *cache) {
    atomic_store_release(&cache->state, CACHE_KEPT);
    cache->next_unused = registry.kept;
    registry.kept = cache;
    registry.kept_bytes += cache->capacity_bytes;
    atomic_bump_owned(&registry.kept_count, 1u);
}

static void note_succession(bool was_soon) {
    atomic_store_relaxed(&registry.keeps, knobs_tell_succession(was_soon));
}

static bool is_short(uint64_t since_ticks, uint64_t now_ticks) {
    return now_ticks - since_ticks < OS_TICKS_PACE;
}

// The cache of the thread that ended last, or a new one; it counts as in use. NULL when there is no memory.
static struct thread_cache *take_cache(void) {
    struct thread_cache *cache;
    const uint64_t now_ticks = os_ticks();
    if (registry.kept != NULL) {
        cache = unlink_kept(&registry.kept);
        capacity_join(&cache->claim, 0, false);
    } else {
        cache = registry.unused;
        if (cache != NULL) {
            registry.unused = cache->next_unused;
        } else if ((cache = take_abandoned()) != NULL) {
            cache->came_soon = false;
            capacity_forfeit(&cache->claim, cache->capacity_bytes);
            return cache;
        } else if ((cache = make_cache()) == NULL) {
            return NULL;
        }
        if (atomic_load_relaxed(&cache->state) == CACHE_ORPHAN) {
            cache_forget(cache);
        }
        capacity_join(&cache->claim, cache->capacity_bytes,
                      is_short(cache->passed_ticks, now_ticks));
    }
    cache->came_soon = false;
    if (cache->passed_ticks != 0) {
        cache->came_soon = is_short(cache->passed_ticks, now_ticks);
        note_succession(cache->came_soon);
    }
    cache->passed_ticks = now_ticks;
    return cache;
}

struct thread_cache *lifecycle_attach(void) {
    struct thread_cache *cache = thread_cache;
    if (cache_is_real(cache)) {
        if (unlikely(cache->exit_rounds == EXIT_ROUNDS_OF_FREE)) {
            // It allocates, and so is at work; where it is a destructor after all, take_abandoned() finds the cache.
            cache->exit_rounds = 0;
        }
        return cache;
    }
    if (cache == &cache_of_ended_thread) {
        return NULL;
    }
    lifecycle_start();
    lock_acquire(&registry.lock);
    cache = take_cache();
    if (cache == NULL) {
        lock_release(&registry.lock);
        return NULL;
    }
    knobs_call(&knobs_hooks.thread_start, cache);
    claim(cache);
    cache->exit_rounds = 0;
    cache->entered = true;
    // Before the lock goes: the child of a fork in a handler that comes then takes a cache that is in use, and not this, for an orphan.
    thread_cache = cache;
    lock_release(&registry.lock);
    count_event(COUNTER_threads_attached, 1);
    event_record(EVENT_thread_attached, cache->heap.id, cache->thread_id);
    cache_adjust(cache);
    research_follow(cache);
    atomic_bump_owned(&cache->activity, 1u);
    cache_leave(cache, false);
    // May allocate: the cache is in place. Without a key the cache stays with the dead thread until another one finds it
    // (take_abandoned()); its blocks can be freed by all.
    if (registry.has_key) {
        pthread_setspecific(registry.exit_key, cache);
    }
    if (lifecycle_attached != NULL) {
        lifecycle_attached();
    }
    return cache;
}

struct thread_cache *lifecycle_attach_to_free(void) {
    struct thread_cache *cache = thread_cache;
    if (likely(cache_is_real(cache))) {
        return cache;
    }
    // glibc frees what belongs to a thread's stack after the thread's key destructors, in that thread or in one that ends later: one
    // that never called malloc would get a cache there that nobody takes from it any more.
    if (cache == &cache_of_ended_thread || os_thread_has_ended()) {
        return NULL;
    }
    cache = lifecycle_attach();
    if (cache != NULL) {
        // It may be one of the thread's destructors, and rounds may have gone by: at the next one the cache goes.
        cache->exit_rounds = EXIT_ROUNDS_OF_FREE;
    }
    return cache;
}

// Of glibc: true while the process never had a second thread.
extern char __libc_single_threaded __attribute__((weak));

bool lifecycle_is_single_threaded(void) {
    return &__libc_single_threaded != NULL && __libc_single_threaded != 0;
}

bool lifecycle_has_caches(void) {
    lock_acquire(&registry.lock);
    // Beside other threads (the library was loaded late) the first cache may be one's that forks do not wait for.
    const bool has_caches = registry.last_id > LATE_HEAP_ID || !lifecycle_is_single_threaded();
    lock_release(&registry.lock);
    return has_caches;
}

// Whether the thread that ends leaves its blocks to the next one, if there is room for them.
static bool may_keep(const struct thread_cache *cache) {
    return atomic_load_relaxed(&registry.keeps) && option_live(learn) != 0 && cache->came_soon &&
           is_short(cache->passed_ticks, os_ticks()) && cache->capacity_bytes != 0 &&
           cache->claim.earned_bytes == 0 && !cache_is_diverted(cache) && !capacity_is_overdrawn();
}

// `cpu_ns`: of the thread that leaves the heap for good; 0: its successor is expected.
static void tidy(struct heap *heap, uint64_t cpu_ns) {
    lock_acquire(&heap->lock);
    heap_collect(heap);
    heap_release_empty(heap, true);
    heap_purge_at_end(heap, cpu_ns);
    lock_release(&heap->lock);
}

// False when the caches that keep blocks have no room for another one.
static bool give_back(struct thread_cache *cache, enum cache_state state) {
    const bool keeps = state == CACHE_KEPT;
    lock_acquire(&registry.lock);
    if (keeps && registry.kept_bytes + cache->capacity_bytes > option_live(cache_heap_bytes)) {
        lock_release(&registry.lock);
        return false;
    }
    event_record(EVENT_thread_detached, cache->heap.id, cache->thread_id);
    if (cache_of_ended_thread.page_map == NULL) {
        memcpy(&cache_of_ended_thread, &cache_of_new_thread, sizeof cache_of_ended_thread);
    }
    thread_cache = &cache_of_ended_thread;
    cache->passed_ticks = os_ticks();
    if (keeps) {
        push_kept(cache);
    } else {
        push_unused(cache);
    }
    capacity_leave(&cache->claim, keeps ? 0 : cache->capacity_bytes);
    lock_release(&registry.lock);
    return true;
}

void lifecycle_detach(void) {
    struct thread_cache *cache = thread_cache;
    if (!cache_is_real(cache)) {
        return;
    }
    if (may_keep(cache)) {
        if (heap_has_remote(&cache->heap)) {
            tidy(&cache->heap, 0);
        }
        cache->kept_ms = os_clock_ms();
        if (give_back(cache, CACHE_KEPT)) {
            return;
        }
    }
    cache_empty(cache);
    if (unlikely(cache->heap.overfull != NULL)) {
        relief_at_end(cache, cache->capacity_bytes);
    }
    tidy(&cache->heap, os_thread_cpu_ns());
    give_back(cache, CACHE_UNUSED);
}

// Caches that a tick empties; the next one goes on. All of it together is the work of a slow path.
#define OVERDUE_CACHES 8

// Whether it was given back at that time, or before the clock went back.
static bool is_kept_since(const struct thread_cache *cache, uint64_t before_ms) {
    return cache->kept_ms <= before_ms ||
           os_clock_went_back(cache->kept_ms, before_ms + option_live(decay_interval_ms));
}

// One that keeps blocks since `before_ms` or longer; it counts as in use: the calling thread has it beside its own. NULL
// when there is none, and in a tick also while others start or end threads: another tick comes.
static struct thread_cache *take_kept(uint64_t before_ms, bool in_tick) {
    if (!in_tick) {
        lock_acquire(&registry.lock);
    } else if (!lock_try_acquire(&registry.lock)) {
        return NULL;
    }
    struct thread_cache **link = &registry.kept;
    while (*link != NULL && !is_kept_since(*link, before_ms)) {
        link = &(*link)->next_unused;
    }
    struct thread_cache *cache = *link;
    if (cache != NULL) {
        unlink_kept(link);
        capacity_join(&cache->claim, 0, false);
        claim(cache);
    }
    lock_release(&registry.lock);
    return cache;
}

static void set_budget(struct heap *heap, size_t bytes) {
    lock_acquire(&heap->lock);
    heap->budget_bytes = bytes;
    heap->wants_visit = true;
    lock_release(&heap->lock);
}

// Brings home what one cache has kept since `before_ms` or longer. False when there is none. Without the registry's lock:
// threads start and end meanwhile, also in a handler of SIGABRT that a misuse noticed here calls. What others freed of its
// heap's blocks, and the heap's empty slabs, are left to those who visit idle heaps, which do a part at a time.
static bool empty_one(uint64_t before_ms, bool in_tick) {
    struct thread_cache *cache = take_kept(before_ms, in_tick);
    if (cache == NULL) {
        return false;
    }
    // As in a visit to an idle heap.
    set_budget(&cache->heap, HEAP_BUDGET_SELDOM);
    cache_empty(cache);
    set_budget(&cache->heap, HEAP_BUDGET_ALL);
    lock_acquire(&registry.lock);
    // A handler of a signal may have forked, and this be the child: the cache is an orphan there.
    if (atomic_load_relaxed(&cache->state) == CACHE_IN_USE) {
        capacity_leave(&cache->claim, cache->capacity_bytes);
        push_unused(cache);
    }
    if (in_tick) {
        note_succession(false);
        cache->passed_ticks = 0;  // whoever takes it tells nothing more
    }
    lock_release(&registry.lock);
    return true;
}

void lifecycle_empty_kept(void) {
    // Not what is left meanwhile: threads may end faster than this goes on.
    uint32_t left = atomic_load_relaxed(&registry.kept_count);
    while (left != 0 && empty_one(UINT64_MAX, false)) {
        left--;
    }
}

void lifecycle_empty_overdue(uint64_t now_ms) {
    const uint64_t decay_ms = option_live(decay_interval_ms);
    if (likely(atomic_load_relaxed(&registry.kept_count) == 0) || now_ms < decay_ms) {
        return;
    }
    for (unsigned i = 0; i < OVERDUE_CACHES && empty_one(now_ms - decay_ms, true); i++) {
    }
}

void *late_alloc(uint64_t class_index) {
    lifecycle_start();
    void *block;
    lock_acquire(&shared_late_heap.lock);
    heap_collect(&shared_late_heap);
    const unsigned got = heap_take(&shared_late_heap, class_index, 1, &block);
    heap_count(&shared_late_heap, COUNTER_late_operations, 1);
    lock_release(&shared_late_heap.lock);
    return got == 1 ? block : NULL;
}

struct heap *late_free(struct run *slab, void *block) {
    // A fork waits for it.
    lock_acquire(&shared_late_heap.lock);
    struct heap *overfull = heap_publish_block(slab, block);
    heap_count(&shared_late_heap, COUNTER_late_operations, 1);
    heap_count(&shared_late_heap, COUNTER_remote_publishes, 1);
    heap_count(&shared_late_heap, COUNTER_remote_blocks, 1);
    lock_release(&shared_late_heap.lock);
    return overfull;
}

struct thread_cache *lifecycle_caches(void) {
    return atomic_load_acquire(&registry.all);
}

struct heap *late_heap(void) {
    return &shared_late_heap;
}

uint32_t lifecycle_count(void) {
    return atomic_load_relaxed(&registry.count);
}

uint32_t lifecycle_count_in_use(void) {
    return atomic_load_relaxed(&cache_count_in_use);
}

size_t lifecycle_check(void) {
    struct check check = {"registry of threads", 0, 0};
    uint32_t count = 0;
    uint32_t in_use = 0;
    uint32_t waiting = 0;
    uint32_t kept = 0;
    uint64_t kept_bytes = 0;
    lock_acquire(&registry.lock);
    for (struct thread_cache *cache = lifecycle_caches(); cache != NULL; cache = cache->next_all) {
        count++;
        in_use += atomic_load_relaxed(&cache->state) == CACHE_IN_USE;
        check_that(&check, cache->heap.id > LATE_HEAP_ID && cache->heap.id <= registry.last_id,
                   "a heap's id was given by the registry", cache->heap.id, registry.last_id);
    }
    for (struct thread_cache *cache = registry.unused; cache != NULL && waiting <= count;
         cache = cache->next_unused) {
        waiting++;
        check_that(&check, !cache_may_hold_blocks(atomic_load_relaxed(&cache->state)),
                   "a cache that waits for a thread has none", cache->heap.id,
                   atomic_load_relaxed(&cache->state));
    }
    for (struct thread_cache *cache = registry.kept; cache != NULL && kept <= count;
         cache = cache->next_unused) {
        kept++;
        kept_bytes += cache->capacity_bytes;
        check_equal(&check, "a cache that keeps blocks says so", atomic_load_relaxed(&cache->state),
                    CACHE_KEPT);
        check.violations += cache_check(cache);
    }
    check_equal(&check, "kept_count == caches that keep blocks", kept,
                atomic_load_relaxed(&registry.kept_count));
    check_equal(&check, "kept_bytes == what these may hold", kept_bytes, registry.kept_bytes);
    check_equal(&check, "count == caches on the list", lifecycle_count(), count);
    check_equal(&check, "caches in use are counted", lifecycle_count_in_use(), in_use);
    check_equal(&check, "each cache is in use or waits", in_use + waiting + kept, count);
    lock_release(&registry.lock);
    return check.violations;
}

// ---- The part of fork.c ----

// Blocks of orphans (fork.c), as far as the copies of the magazines tell. Written in a child's only thread, before it goes on.
static uint64_t lost_blocks[SIZE_CLASS_COUNT];

uint64_t lifecycle_lost_blocks(uint64_t class_index) {
    return lost_blocks[class_index];
}

void lifecycle_fork_lock(void) {
    lock_acquire(&registry.lock);
    lock_acquire(&shared_late_heap.lock);
    for (struct thread_cache *cache = lifecycle_caches(); cache != NULL; cache = cache->next_all) {
        lock_acquire(&cache->heap.lock);
    }
}

void lifecycle_fork_unlock(void) {
    for (struct thread_cache *cache = lifecycle_caches(); cache != NULL; cache = cache->next_all) {
        lock_release(&cache->heap.lock);
    }
    lock_release(&shared_late_heap.lock);
    lock_release(&registry.lock);
}

static void count_lost(const struct thread_cache *cache) {
    for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        lost_blocks[i] += cache_block_count(cache, i);
    }
}

void lifecycle_fork_child(void) {
    for (struct thread_cache *cache = lifecycle_caches(); cache != NULL; cache = cache->next_all) {
        if (cache != thread_cache && atomic_load_relaxed(&cache->state) == CACHE_IN_USE) {
            count_lost(cache);
            atomic_store_relaxed(&cache->state, CACHE_ORPHAN);
            cache->heap.budget_bytes =
                HEAP_BUDGET_ALL;  // the thread may have emptied it (empty_one)
            cache->passed_ticks = 0;
            cache->next_unused = registry.unused;
            registry.unused = cache;
        }
    }
    capacity_only(cache_is_real(thread_cache), &thread_cache->claim, thread_cache->capacity_bytes,
                  registry.kept_bytes);
}
