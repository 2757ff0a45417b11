// A process to which everything happens at once: threads that fill, resize, hand on and check blocks; threads of a
// short life that free in destructors, also cancelled ones; forks and children of posix_spawn and vfork; a timer
// that interrupts all the time; options that change; trims, checks and figures; libraries that come and go.
//
//   odd SEED MILLISECONDS STATUS THING,THING... [PLUGIN]
//
// Every block is checked before it goes. A NULL is a failure unless `null` is among the things, and must come with
// ENOMEM. At the end nothing may be live, the heap must be sound, the memory given back (unless `kept` is among the
// things); the process then ends with STATUS, by way of exit(). `plant_*` are faults that must be found.
#include "behaviour.h"

#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/time.h>

#include "hakmem.h"

// Whoever is preloaded has them.
#pragma weak hakmem_option_set
#pragma weak hakmem_snapshot_fd
#pragma weak hakmem_stats_json
#pragma weak hakmem_totals

extern char **environ;

enum { SLOTS = 300, SHELF = 64, LIVE_MAX = 12 * 1024 * 1024, LEAKS_STATUS = 77 };

struct block {
    unsigned char *at;
    size_t bytes;
    uint64_t key;
};

static struct {
    uint64_t seed;
    uint64_t until;
    const char *things;
    const char *plugin;
    bool null_allowed;
} run;

static struct {
    pthread_mutex_t lock;
    struct block block;
} shelf[SHELF];

static atomic_ulong nulls;       // relaxed: a figure
static atomic_ulong interrupts;  // relaxed: a figure
static pthread_key_t key;

static bool has(const char *thing) {
    const size_t length = strlen(thing);
    for (const char *at = strstr(run.things, thing); at != NULL; at = strstr(at + 1, thing)) {
        if ((at == run.things || at[-1] == ',') && (at[length] == '\0' || at[length] == ',')) {
            return true;
        }
    }
    return false;
}

static bool over(void) {
    return now_ms() >= run.until;
}

static bool got(const void *block, size_t bytes) {
    if (block != NULL) {
        return true;
    }
    require_that(errno == ENOMEM, "NULL for %zu bytes came with errno %d", bytes, errno);
    require_that(run.null_allowed, "NULL for %zu bytes", bytes);
    atomic_fetch_add_explicit(&nulls, 1, memory_order_relaxed);
    return false;
}

static void check(const struct block *block) {
    const size_t same = pattern_differs(block->at, block->bytes, block->key);
    require_that(same == block->bytes, "a block of %zu bytes at %p changed at byte %zu",
                 block->bytes, (void *)block->at, same);
}

static void drop(struct block *block) {
    if (block->at != NULL) {
        check(block);
        errno = EXFULL;
        free(block->at);
        require_that(errno == EXFULL, "free set errno to %d", errno);
        block->at = NULL;
    }
}

static size_t some_size(uint64_t *seed) {
    const size_t kind = random_below(seed, 100);
    return random_log_size(seed, kind < 80   ? 2000
                                 : kind < 95 ? 60000
                                 : kind < 98 ? 900000
                                             : 9 * MIB);
}

static void take(struct block *block, uint64_t *seed) {
    const size_t bytes = some_size(seed);
    void *at = NULL;
    switch (random_below(seed, 6)) {
    case 0:
        at = calloc(1, bytes);
        require_that(at == NULL || all_zero(at, bytes), "calloc of %zu bytes is not zero", bytes);
        break;
    case 1: {
        const size_t alignment = (size_t)16 << random_below(seed, 14);
        const int error = posix_memalign(&at, alignment, bytes);
        errno = error;
        require(error == 0 || at == NULL);
        require_that(error != 0 || aligned_to(at, alignment), "%p is not at %zu", at, alignment);
        break;
    }
    default:
        at = malloc(bytes);
    }
    block->at = NULL;
    if (got(at, bytes)) {
        require(malloc_usable_size(at) >= bytes && aligned_to(at, 16));
        *block = (struct block){(unsigned char *)at, bytes, behaviour_random(seed)};
        pattern_fill(at, bytes, block->key);
    }
}

static void resize(struct block *block, uint64_t *seed) {
    const size_t bytes = some_size(seed);
    check(block);
    void *at = realloc(block->at, bytes);
    if (got(at, bytes)) {
        block->at = (unsigned char *)at;
        block->bytes = bytes < block->bytes ? bytes : block->bytes;
        check(block);
        block->bytes = bytes;
        pattern_fill(at, bytes, block->key);
    }
}

static void hand_on(struct block *block, uint64_t *seed) {
    const size_t place = random_below(seed, SHELF);
    require(pthread_mutex_lock(&shelf[place].lock) == 0);
    const struct block other = shelf[place].block;
    shelf[place].block = *block;
    require(pthread_mutex_unlock(&shelf[place].lock) == 0);
    *block = other;
}

static void step(struct block *blocks, size_t count, size_t *live, uint64_t *seed) {
    struct block *block = &blocks[random_below(seed, count)];
    *live -= block->at != NULL ? block->bytes : 0;
    if (block->at == NULL) {
        if (*live < LIVE_MAX / 2) {
            take(block, seed);
        }
    } else if (random_below(seed, 8) == 0 && *live < LIVE_MAX / 2) {
        resize(block, seed);
    } else if (random_below(seed, 4) == 0) {
        hand_on(block, seed);
    } else {
        drop(block);
    }
    *live += block->at != NULL ? block->bytes : 0;
}

static void churn(struct block *blocks, size_t count, size_t steps, uint64_t *seed) {
    size_t live = 0;
    for (size_t i = 0; i < steps; i++) {
        step(blocks, count, &live, seed);
    }
    for (size_t i = 0; i < count; i++) {
        drop(&blocks[i]);
    }
}

static void *worker(void *argument) {
    uint64_t seed = random_stream(run.seed, (uint64_t)(uintptr_t)argument);
    struct block *blocks = (struct block *)test_memory(SLOTS * sizeof *blocks);
    while (!over()) {
        churn(blocks, SLOTS, 1 + random_below(&seed, 6000), &seed);
        if (random_below(&seed, 4) == 0) {
            sleep_ms((unsigned int)random_below(&seed, 30));
        }
    }
    munmap(blocks, SLOTS * sizeof *blocks);
    return NULL;
}

// ---- Threads of a short life
static void destroy(void *value) {
    struct block *left = (struct block *)value;
    drop(left);
    free(left);
    uint64_t seed = random_stream(run.seed, now_ms());
    struct block block;
    take(&block, &seed);
    drop(&block);
}

static void clean_up(void *value) {
    drop((struct block *)value);
}

static void *short_life(void *argument) {
    uint64_t seed = (uint64_t)(uintptr_t)argument;
    struct block *left = (struct block *)malloc(sizeof *left);
    if (got(left, sizeof *left)) {
        take(left, &seed);
        if (pthread_setspecific(key, left) != 0) {
            drop(left);
            free(left);
        }
    }
    struct block blocks[20] = {{0}};
    churn(blocks, 20, random_below(&seed, 300), &seed);
    if (has("cancel") && random_below(&seed, 2) == 0) {
        struct block held;
        take(&held, &seed);
        pthread_cleanup_push(clean_up, &held);
        // Between its calls of malloc, a thread may be cancelled anywhere.
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
        sleep_ms(3);
        pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, NULL);
        pthread_cleanup_pop(1);
    }
    return NULL;
}

static void *short_lives(void *argument) {
    uint64_t seed = random_stream(run.seed, (uint64_t)(uintptr_t)argument);
    while (!over()) {
        pthread_t threads[8];
        size_t count = 0;
        const size_t wanted = 1 + random_below(&seed, 8);
        for (size_t i = 0; i < wanted; i++) {
            pthread_attr_t attributes;
            require(pthread_attr_init(&attributes) == 0);
            // Of these 8 KiB are this program's thread-local memory; the handlers' frames come on top.
            const size_t stack = has("small") ? 28 * KIB : 64 * KIB;
            require(pthread_attr_setstacksize(&attributes, stack) == 0);
            const uint64_t own = behaviour_random(&seed);
            const int error =
                pthread_create(&threads[count], &attributes, short_life, (void *)(uintptr_t)own);
            require_that(error == 0 || run.null_allowed, "pthread_create: %d", error);
            count += error == 0;
            require(pthread_attr_destroy(&attributes) == 0);
        }
        for (size_t i = 0; i < count; i++) {
            if (has("cancel") && random_below(&seed, 2) == 0) {
                (void)pthread_cancel(threads[i]);
            }
            require(pthread_join(threads[i], NULL) == 0);
        }
    }
    return NULL;
}

// ---- Children
static void await(pid_t child, int wanted, bool by_exit) {
    int status;
    while (waitpid(child, &status, 0) != child) {
        require(errno == EINTR);
    }
    const bool leaks = by_exit && WIFEXITED(status) && WEXITSTATUS(status) == LEAKS_STATUS;
    // Where blocks may be refused a loader may be as well, which says so and ends with 127.
    const bool unborn = run.null_allowed && wanted == 0 && WIFEXITED(status);
    require_that((WIFEXITED(status) && WEXITSTATUS(status) == wanted) || leaks || unborn,
                 "a child ended with status %#x, not with %d", status, wanted);
}

static void fork_once(uint64_t *seed) {
    const pid_t child = fork();
    if (child < 0) {
        require(run.null_allowed);
        return;
    }
    const bool by_exit = random_below(seed, 2) == 0;
    if (child != 0) {
        await(child, 33, by_exit);
        return;
    }
    alarm(120);
    struct block blocks[30] = {{0}};
    size_t live = 0;
    for (int i = 0; i < 400; i++) {
        struct block *block = &blocks[random_below(seed, 30)];
        if (block->at != NULL) {
            drop(block);
        } else if (live < 100) {
            take(block, seed);
        }
    }
    for (int i = 0; i < 30; i++) {
        drop(&blocks[i]);
    }
    if (has("check")) {
        behaviour_require_sound_heap();
    }
    if (by_exit) {
        exit(33);
    }
    _exit(33);
}

static void *children(void *argument) {
    uint64_t seed = random_stream(run.seed, (uint64_t)(uintptr_t)argument);
    char *const true_command[] = {(char *)"/bin/true", NULL};
    while (!over()) {
        pid_t child;
        switch (random_below(&seed, 4)) {
        case 0:
            if (posix_spawn(&child, true_command[0], NULL, NULL, true_command, environ) == 0) {
                await(child, 0, true);
            }
            break;
        case 1:
            child = vfork();
            if (child == 0) {
                execv(true_command[0], true_command);
                _exit(126);
            }
            if (child > 0) {
                await(child, 0, true);
            }
            break;
        default:
            fork_once(&seed);
        }
        sleep_ms((unsigned int)random_below(&seed, 5));
    }
    return NULL;
}

// ---- The process's own hands
#define OPTION_IS_START false
#define OPTION_IS_LIVE true
#define TEXT_TYPE_BOOL true
#define TEXT_TYPE_UINT true
#define TEXT_TYPE_BYTES true
#define TEXT_TYPE_MS true
#define TEXT_TYPE_ENUM false
#define TEXT_TYPE_STRING false
struct option {
    const char *name;
    uint64_t min;
    uint64_t max;
    bool may_change;
};
#define OPTION(name, type, initial, min, max, unit, when, help) \
    {#name, (min), (max), OPTION_IS_##when && TEXT_TYPE_##type},
#define CHOICE(option, name, number, help)
#define MODE(mode, option, value)
static const struct option options[] = {
#include "config/options.def"
};
enum { OPTION_COUNT = sizeof options / sizeof options[0] };

static void change_option(uint64_t *seed) {
    const struct option *option = &options[random_below(seed, OPTION_COUNT)];
    if (!option->may_change) {
        return;
    }
    const uint64_t span = option->max - option->min;
    uint64_t value = option->min;
    switch (random_below(seed, 4)) {
    case 0:
        break;
    case 1:
        value = option->max;
        break;
    default:
        value += random_log_size(seed, span + 1) - 1;
    }
    if (strcmp(option->name, "leaks_exit_status") == 0) {
        value = value == 0 ? 0 : LEAKS_STATUS;
    } else if (strcmp(option->name, "check") == 0 && !has("check")) {
        value = 0;
    }
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    require_that(hakmem_option_set(option->name, text) == 0, "%s=%s was refused", option->name,
                 text);
}

static int swallow(void *context, const char *text, size_t bytes) {
    (void)text;
    *(size_t *)context += bytes;
    return 0;
}

static void look(uint64_t *seed) {
    size_t written = 0;
    struct hakmem_totals totals;
    switch (random_below(seed, 6)) {
    case 0:
        malloc_trim(0);
        break;
    case 1:
        behaviour_require_sound_heap();
        break;
    case 2:
        require(mallinfo2().uordblks < SIZE_MAX / 2);
        break;
    case 3:
        require(hakmem_stats_json(swallow, &written) == 0 && written > 0);
        break;
    case 4: {
        const int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
        require(fd >= 0);
        (void)hakmem_snapshot_fd(fd);
        close(fd);
        break;
    }
    default:
        hakmem_totals(&totals);
        require(totals.live_bytes < GIB && totals.cached_bytes < GIB);
    }
}

static void load_plugin(uint64_t *seed) {
    void *plugin = dlopen(run.plugin, RTLD_NOW);
    if (plugin == NULL) {
        require_that(run.null_allowed, "dlopen: %s", dlerror());
        return;
    }
    void *(*take_block)(size_t) = (void *(*)(size_t))dlsym(plugin, "plugin_take");
    require(take_block != NULL);
    void *block = run.null_allowed ? NULL : take_block(random_log_size(seed, 9000));
    require(dlclose(plugin) == 0);
    free(block);
}

static void *hands(void *argument) {
    uint64_t seed = random_stream(run.seed, (uint64_t)(uintptr_t)argument);
    while (!over()) {
        if (has("options")) {
            change_option(&seed);
        }
        if (has("look")) {
            look(&seed);
        }
        // What allocates in a C++ library ends the process where it gets NULL.
        if (has("plugin") && !run.null_allowed) {
            load_plugin(&seed);
        }
        sleep_ms((unsigned int)random_below(&seed, 4));
    }
    return NULL;
}

// ---- The whole
static void interrupted(int number) {
    (void)number;
    atomic_fetch_add_explicit(&interrupts, 1, memory_order_relaxed);
}

static void prepare(void) {
    if (has("interrupts")) {
        struct sigaction action = {.sa_handler = interrupted, .sa_flags = SA_RESTART};
        require(sigaction(SIGALRM, &action, NULL) == 0);
        const struct timeval often = {0, 200};
        require(setitimer(ITIMER_REAL, &(struct itimerval){often, often}, NULL) == 0);
    }
    if (has("locked")) {
        (void)mlockall(MCL_CURRENT | MCL_FUTURE);
    }
    for (int i = 0; i < SHELF; i++) {
        require(pthread_mutex_init(&shelf[i].lock, NULL) == 0);
    }
    require(pthread_key_create(&key, destroy) == 0);
}

static void plant(void) {
    for (int i = 0; has("plant_byte") && i < SHELF; i++) {
        if (shelf[i].block.at != NULL) {
            shelf[i].block.at[0] ^= 1;
        }
    }
    if (has("plant_lost")) {
        memset(opaque_pointer(malloc(20 * MIB)), 1, 20 * MIB);
    }
    if (has("plant_twice")) {
        void *block = opaque_pointer(malloc(MIB));
        free(block);
        free(block);
    }
    while (has("plant_hang")) {
        sleep_ms(1000);
    }
}

static void give_back(size_t resident_before, size_t live_before) {
    for (int i = 0; i < SHELF; i++) {
        drop(&shelf[i].block);
    }
    malloc_trim(0);
    behaviour_require_sound_heap();
    struct hakmem_totals totals;
    hakmem_totals(&totals);
    const size_t resident = rss_bytes();
    behaviour_say(
        "odd: %lu NULLs, %lu interrupts, resident %zu KiB, live %zu KiB before %zu, dirty %zu",
        (unsigned long)nulls, (unsigned long)interrupts, resident / KIB,
        (size_t)totals.live_bytes / KIB, live_before / KIB, (size_t)totals.dirty_bytes / KIB);
    require_that(totals.live_bytes < live_before + 256 * KIB, "%zu KiB are live at the end",
                 (size_t)totals.live_bytes / KIB);
    require_that(has("kept") || resident < resident_before + 12 * MIB,
                 "%zu KiB are resident at the end, %zu at the start", resident / KIB,
                 resident_before / KIB);
}

int main(int count, char **values) {
    behaviour_require_allocator();
    require(count >= 5 && hakmem_version != NULL);
    run.seed = strtoull(values[1], NULL, 10);
    run.until = now_ms() + strtoull(values[2], NULL, 10);
    run.things = values[4];
    run.plugin = count > 5 ? values[5] : NULL;
    run.null_allowed = has("null");
    prepare();
    struct hakmem_totals totals;
    hakmem_totals(&totals);
    const size_t resident = rss_bytes();
    void *(*const bodies[])(void *) = {worker,      worker, worker,
                                       short_lives, hands,  has("children") ? children : worker};
    enum { THREADS = sizeof bodies / sizeof bodies[0] };
    pthread_t threads[THREADS];
    bool started[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) {
        pthread_attr_t attributes;
        require(pthread_attr_init(&attributes) == 0);
        require(pthread_attr_setstacksize(&attributes, 256 * KIB) == 0);
        const int error = pthread_create(&threads[i], &attributes, bodies[i], (void *)i);
        require_that(error == 0 || run.null_allowed, "pthread_create: %d", error);
        started[i] = error == 0;
    }
    worker((void *)(uintptr_t)THREADS);
    for (int i = 0; i < THREADS; i++) {
        require(!started[i] || pthread_join(threads[i], NULL) == 0);
    }
    plant();
    give_back(resident, (size_t)totals.live_bytes);
    exit(atoi(values[3]));
}
