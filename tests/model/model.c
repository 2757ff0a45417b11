// Random operations on the allocator against a simple reference.
//
// Each thread owns a table of blocks and calls malloc, calloc, realloc, memalign, free and
// malloc_usable_size on them at random; blocks also change owner through a common exchange, so that
// threads free, resize and check what others allocated. Checked on every block:
//   alignment of what was asked for, at least 16;
//   no overlap with any live block, up to the usable size (reference.c);
//   a usable size that is at least the request and does not change;
//   contents up to the usable size, unchanged until the block goes, kept by realloc, zero from
//   calloc.
//
// The seed is printed. With one thread a run is repeatable; each failure names the thread, the
// operation's number and the last operations of that thread. Every operation draws from a stream of its
// own, so that others may be left out: with --only FILE the run does the operations that the file names,
// and shrink.py looks for as few as fail.
#include "behaviour.h"
#include "contents.h"
#include "names.h"
#include "reference.h"

#include <inttypes.h>

enum { SLOT_COUNT = 700, EXCHANGE_COUNT = 128, THREADS_MAX = 64, HISTORY_COUNT = 32 };

struct event {
    const char *what;
    size_t bytes;
    size_t alignment;
    void *before;
    void *after;
};

struct worker {
    unsigned int number;
    uint64_t first_seed;
    uint64_t seed;  // of the operation
    uint64_t operation;
    uint64_t live_bytes;
    struct block slots[SLOT_COUNT];
    struct event history[HISTORY_COUNT];
};

// One place where a thread leaves a block for any other. The mutex is the only order between them.
struct exchange {
    pthread_mutex_t lock;
    struct block block;
} __attribute__((aligned(64)));

static struct {
    uint64_t seed;
    uint64_t operations;  // per thread
    unsigned int threads;
    size_t size_max;
    uint64_t live_max;  // per thread
    bool reference;     // the interval set; off where its mutex would order all threads (TSan)
    const bool *only;   // by operation; NULL: all
} settings = {0, 500000, 4, 4 * MIB, 64 * MIB, true, NULL};

static struct exchange exchanges[EXCHANGE_COUNT];

__attribute__((noreturn, format(printf, 3, 4))) static void
model_fail(const struct worker *worker, const struct block *block, const char *format, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr,
            "model: FAILED: %s\n"
            "model: seed %" PRIu64 ", thread %u, operation %" PRIu64
            ", block %p of %zu bytes, usable %zu\n",
            text, settings.seed, worker->number, worker->operation, (void *)block->start,
            block->bytes, block->usable);
    for (uint64_t i = 0; i < HISTORY_COUNT; i++) {
        const struct event *event = &worker->history[(worker->operation + 1 + i) % HISTORY_COUNT];
        if (event->what != NULL) {
            fprintf(stderr, "model:   %s bytes %zu alignment %zu: %p -> %p\n", event->what,
                    event->bytes, event->alignment, event->before, event->after);
        }
    }
    fflush(stderr);
    _exit(1);
}

static void note(struct worker *worker, const char *what, size_t bytes, size_t alignment,
                 void *before, void *after) {
    worker->history[worker->operation % HISTORY_COUNT] =
        (struct event){what, bytes, alignment, before, after};
}

static void check(const struct worker *worker, const struct block *block) {
    size_t usable = model_usable(block->start);
    if (usable != block->usable) {
        model_fail(worker, block, "the usable size changed to %zu", usable);
    }
    size_t wrong = contents_wrong(block);
    if (wrong != SIZE_MAX) {
        model_fail(worker, block, "the contents changed at byte %zu", wrong);
    }
}

// A block that the allocator just returned: everything about it is checked, then it is filled.
static void adopt(struct worker *worker, struct block *block, size_t alignment) {
    if (block->start == NULL) {
        model_fail(worker, block, "NULL for %zu bytes", block->bytes);
    }
    size_t least = alignment > 16 ? alignment : 16;
    if (((uintptr_t)block->start & (least - 1)) != 0) {
        model_fail(worker, block, "not aligned to %zu", least);
    }
    block->usable = model_usable(block->start);
    if (block->usable < block->bytes) {
        model_fail(worker, block, "usable size below the request");
    }
    uintptr_t other_start = 0;
    size_t other_bytes = 0;
    if (settings.reference &&
        !reference_add((uintptr_t)block->start, block->usable, &other_start, &other_bytes)) {
        model_fail(worker, block, "overlaps the live block at %p of %zu bytes", (void *)other_start,
                   other_bytes);
    }
    block->key = behaviour_random(&worker->seed);
    contents_fill(block);
    worker->live_bytes += block->usable;
}

// The block is about to go back to the allocator.
static void disown(struct worker *worker, struct block *block) {
    if (settings.reference && !reference_remove((uintptr_t)block->start)) {
        model_fail(worker, block, "the reference does not know this block");
    }
    // Blocks from the exchange count where they are freed: only the order of magnitude matters.
    worker->live_bytes -= block->usable < worker->live_bytes ? block->usable : worker->live_bytes;
}

static size_t choose_size(struct worker *worker) {
    uint64_t dice = behaviour_random(&worker->seed) % 1000;
    if (dice < 5) {
        return 0;
    }
    size_t max = dice < 900 ? 2 * KIB : dice < 990 ? 128 * KIB : settings.size_max;
    if (worker->live_bytes > settings.live_max && max > 2 * KIB) {
        max = 2 * KIB;
    }
    return random_log_size(&worker->seed, max < settings.size_max ? max : settings.size_max);
}

static void allocate(struct worker *worker, struct block *block) {
    size_t alignment = 16;
    block->bytes = choose_size(worker);
    block->usable = 0;
    const char *what;
    switch (random_below(&worker->seed, 8)) {
    case 0:
    case 1:
        what = "calloc";
        block->start = (unsigned char *)model_calloc(block->bytes);
        // Large ones are mostly checked at sampled words.
        if (block->start != NULL &&
            (block->bytes <= CONTENTS_FULL_BYTES || random_below(&worker->seed, 8) == 0)) {
            if (!all_zero(block->start, block->bytes)) {
                model_fail(worker, block, "calloc gave bytes that are not zero");
            }
        } else if (block->start != NULL) {
            for (size_t at = 0; at + 8 <= block->bytes; at += 512) {
                if (!all_zero(block->start + at, 8)) {
                    model_fail(worker, block, "calloc gave bytes that are not zero");
                }
            }
        }
        break;
    case 2:
        what = "memalign";
        alignment = (size_t)1 << random_below(&worker->seed,
                                              random_below(&worker->seed, 16) == 0 ? 22 : 13);
        block->start = (unsigned char *)model_memalign(alignment, block->bytes);
        break;
    case 3:
        what = "realloc of NULL";
        // realloc(NULL, 0) is malloc(0).
        block->start = (unsigned char *)model_realloc(NULL, block->bytes);
        break;
    default:
        what = "malloc";
        block->start = (unsigned char *)model_malloc(block->bytes);
    }
    note(worker, what, block->bytes, alignment, NULL, block->start);
    adopt(worker, block, alignment);
}

static void release(struct worker *worker, struct block *block) {
    note(worker, "free", block->bytes, 0, block->start, NULL);
    check(worker, block);
    disown(worker, block);
    model_free(block->start);
    block->start = NULL;
}

static void resize(struct worker *worker, struct block *block) {
    size_t bytes = choose_size(worker);
    switch (random_below(&worker->seed, 4)) {
    case 0:  // a little more, a little less
        bytes = block->bytes + random_below(&worker->seed, 64);
        break;
    case 1:
        bytes = block->bytes - block->bytes / 8;
        break;
    case 2:  // the growing buffer
        bytes = block->bytes * 2;
        break;
    default:
        break;
    }
    if (bytes == 0 || bytes > settings.size_max) {
        // Zero frees; that is its own rule, tested in tests/api.
        bytes = 1 + random_below(&worker->seed, 100);
    }
    check(worker, block);
    struct block old = *block;
    disown(worker, block);
    unsigned char *moved = (unsigned char *)model_realloc(old.start, bytes);
    note(worker, "realloc", bytes, 0, old.start, moved);
    block->start = moved;
    block->bytes = bytes;
    if (moved == NULL) {
        model_fail(worker, block, "NULL for %zu bytes", bytes);
    }
    // What was filled, seen at the new place.
    struct block seen = old;
    seen.start = moved;
    size_t wrong = contents_kept_wrong(&seen, bytes);
    if (wrong != SIZE_MAX) {
        model_fail(worker, block, "realloc from %zu bytes lost byte %zu", old.bytes, wrong);
    }
    adopt(worker, block, 16);
}

static void trade(struct worker *worker, struct block *block) {
    struct exchange *place = &exchanges[random_below(&worker->seed, EXCHANGE_COUNT)];
    pthread_mutex_lock(&place->lock);
    struct block taken = place->block;
    place->block = *block;
    pthread_mutex_unlock(&place->lock);
    note(worker, "trade", 0, 0, block->start, taken.start);
    *block = taken;
    if (taken.start != NULL) {
        check(worker, block);
    }
}

static void operate(struct worker *worker) {
    // The table is alternately filled and emptied, so that slabs fill up and become free again.
    const bool filling = worker->operation / 8192 % 2 == 0;
    struct block *block = &worker->slots[random_below(&worker->seed, SLOT_COUNT)];
    unsigned int dice = (unsigned int)random_below(&worker->seed, 100);
    if (dice < 8) {
        trade(worker, block);
    } else if (block->start == NULL) {
        if (filling || dice < 40) {
            allocate(worker, block);
        }
    } else if (dice < 25) {
        resize(worker, block);
    } else if (dice < 30) {
        check(worker, block);
    } else if (!filling || dice < 75) {
        release(worker, block);
    }
}

static void *work(void *argument) {
    struct worker *worker = (struct worker *)argument;
    for (; worker->operation < settings.operations; worker->operation++) {
        worker->seed = random_stream(worker->first_seed, worker->operation);
        if (settings.only == NULL || settings.only[worker->operation]) {
            operate(worker);
        }
    }
    for (unsigned int i = 0; i < SLOT_COUNT; i++) {
        // Half of what is left goes to the exchange: blocks that outlive their thread.
        if (worker->slots[i].start != NULL && i % 2 == 0) {
            trade(worker, &worker->slots[i]);
        }
        if (worker->slots[i].start != NULL) {
            release(worker, &worker->slots[i]);
        }
    }
    return NULL;
}

static uint64_t number_after(const char *text, const char *name) {
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 0);
    if (errno != 0 || *text == '\0' || *end != '\0') {
        fprintf(stderr, "model: %s needs a number, not '%s'\n", name, text);
        exit(2);
    }
    return value;
}

// The file holds numbers of operations, and stretches "first-last", with spaces between.
static const bool *read_operations(const char *path) {
    bool *only = (bool *)test_memory(settings.operations + 1);
    FILE *file = fopen(path, "r");
    require_that(file != NULL, "cannot read %s", path);
    char word[64];
    while (fscanf(file, "%63s", word) == 1) {
        char *dash = strchr(word, '-');
        if (dash != NULL) {
            *dash = '\0';
        }
        const uint64_t last = number_after(dash == NULL ? word : dash + 1, path);
        for (uint64_t i = number_after(word, path); i <= last && i < settings.operations; i++) {
            only[i] = true;
        }
    }
    fclose(file);
    return only;
}

static void read_arguments(int count, char **values) {
    const char *only = NULL;
    settings.seed = now_ms() * 1000003 + (uint64_t)getpid();
    for (int i = 1; i < count; i++) {
        const char *name = values[i];
        if (strcmp(name, "--no-reference") == 0) {
            settings.reference = false;
            continue;
        }
        if (i + 1 == count) {
            fprintf(stderr,
                    "usage: model [--seed N] [--operations N] [--threads N] [--size-max N]\n"
                    "             [--live-max N] [--no-reference] [--only FILE]%s\n",
#ifdef MODEL_CONTROL
                    " [--fault NAME]"
#else
                    ""
#endif
            );
            exit(2);
        }
        const char *value = values[++i];
        if (strcmp(name, "--seed") == 0) {
            settings.seed = number_after(value, name);
        } else if (strcmp(name, "--operations") == 0) {
            settings.operations = number_after(value, name);
        } else if (strcmp(name, "--threads") == 0) {
            settings.threads = (unsigned int)number_after(value, name);
        } else if (strcmp(name, "--size-max") == 0) {
            settings.size_max = (size_t)number_after(value, name);
        } else if (strcmp(name, "--live-max") == 0) {
            settings.live_max = number_after(value, name);
        } else if (strcmp(name, "--only") == 0) {
            only = value;
#ifdef MODEL_CONTROL
        } else if (strcmp(name, "--fault") == 0) {
            require_that(control_choose(value), "no fault is called %s", value);
#endif
        } else {
            fprintf(stderr, "model: no option %s\n", name);
            exit(2);
        }
    }
    if (settings.threads < 1 || settings.threads > THREADS_MAX || settings.size_max < 4096) {
        fprintf(stderr, "model: 1..%d threads, sizes of 4096 and more\n", THREADS_MAX);
        exit(2);
    }
    if (only != NULL) {
        settings.only = read_operations(only);
    }
}

int main(int count, char **values) {
#if !defined(HAKMEM_INTERNAL) && !defined(MODEL_CONTROL)
    behaviour_require_allocator();
#endif
    read_arguments(count, values);
    printf("model: seed %" PRIu64 ", %u threads, %" PRIu64 " operations each\n", settings.seed,
           settings.threads, settings.operations);
    fflush(stdout);
    reference_init(settings.threads * (SLOT_COUNT + EXCHANGE_COUNT) + EXCHANGE_COUNT);
    for (unsigned int i = 0; i < EXCHANGE_COUNT; i++) {
        pthread_mutex_init(&exchanges[i].lock, NULL);
    }
    struct worker *workers = (struct worker *)test_memory(settings.threads * sizeof(struct worker));
    pthread_t threads[THREADS_MAX];
    uint64_t start = now_ms();
    uint64_t seed = settings.seed;
    for (unsigned int i = 0; i < settings.threads; i++) {
        workers[i].number = i;
        workers[i].first_seed = behaviour_random(&seed);
    }
    // The shared library loads a profile's table of size classes in its constructor, before there are threads.
    model_free(model_malloc(1));
    for (unsigned int i = 1; i < settings.threads; i++) {
        start_thread(&threads[i], 0, work, &workers[i]);
    }
    work(&workers[0]);
    for (unsigned int i = 1; i < settings.threads; i++) {
        pthread_join(threads[i], NULL);
    }
    for (unsigned int i = 0; i < EXCHANGE_COUNT; i++) {
        if (exchanges[i].block.start != NULL) {
            release(&workers[0], &exchanges[i].block);
        }
    }
    require_that(!settings.reference || reference_count() == 0, "%u blocks are left",
                 reference_count());
#ifndef MODEL_CONTROL
    behaviour_require_sound_heap();
#endif
    printf("model: passed in %" PRIu64 " ms\n", now_ms() - start);
    return 0;
}
