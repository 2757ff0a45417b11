#include "frame_inside.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { EXIT_USAGE = 2, EXIT_BROKEN_BLOCK = 3, EXIT_NO_MEMORY = 4 };
enum { OS_PAGE_BYTES = 4096 };

/* Bytes that frame_map() has mapped, whole pages; only the main thread maps. */
static uint64_t mapped_bytes;

/* The floor allocator's own entry point; NULL under any other allocator. Looked up once, before the
 * workload begins: a look-up that fails allocates. */
static void (*floor_circle)(size_t bytes);

/* ---- failing ---- */

static _Noreturn void fail(int status, const char *format, ...) {
    char line[256];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (length > 0) {
        size_t bytes = (size_t)length < sizeof line ? (size_t)length : sizeof line - 1;
        ssize_t ignored = write(STDERR_FILENO, line, bytes);
        (void)ignored;
    }
    _exit(status);
}

void frame_fail(const char *what) {
    fail(EXIT_USAGE, "workload: %s\n", what);
}

void frame_fail_thread(int error) {
    fail(EXIT_NO_MEMORY, "workload: a thread could not be started: %s\n", strerror(error));
}

void frame_fail_contents(const struct frame_slot *slot) {
    fail(EXIT_BROKEN_BLOCK, "workload: the block at %p of %" PRIu32 " bytes lost its contents\n",
         (void *)slot->block, (uint32_t)slot->stamp);
}

void frame_fail_block(const void *block, const char *what) {
    fail(EXIT_BROKEN_BLOCK, "workload: the block at %p %s\n", block, what);
}

void frame_fail_child(int status) {
    fail(EXIT_BROKEN_BLOCK, "workload: a child process ended with wait status %#x\n",
         (unsigned)status);
}

void frame_fail_empty(size_t bytes) {
    fail(EXIT_NO_MEMORY, "workload: no block of %zu bytes\n", bytes);
}

/* ---- memory that is not malloc's ---- */

void *frame_map(size_t bytes) {
    const size_t whole = (bytes + OS_PAGE_BYTES - 1) & ~(size_t)(OS_PAGE_BYTES - 1);
    void *memory = mmap(NULL, whole, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) {
        frame_fail_empty(bytes);
    }
    mapped_bytes += whole;
    return memory;
}

uint64_t frame_mapped_bytes(void) {
    return mapped_bytes;
}

void frame_floor_find(void) {
    /* POSIX's own way to turn dlsym's answer into a function pointer. */
    *(void **)(&floor_circle) = dlsym(RTLD_DEFAULT, "floor_circle");
}

void frame_floor_circle(size_t bytes) {
    if (floor_circle != NULL) {
        floor_circle(bytes);
    }
}

/* ---- threads ---- */

struct frame_worker {
    void (*body)(unsigned index, void *argument);
    void *argument;
    pthread_barrier_t *ready;
    pthread_t thread;
    unsigned index;
};

static void *worker_main(void *argument) {
    struct frame_worker *worker = argument;
    pthread_barrier_wait(worker->ready);
    worker->body(worker->index, worker->argument);
    return NULL;
}

void frame_pin(unsigned index) {
    /* Room for 16,384 processors: the kernel refuses a set that is too small for the machine. */
    static const size_t set_bytes = 16 * sizeof(cpu_set_t);
    cpu_set_t allowed[16];
    cpu_set_t one[16];
    if (sched_getaffinity(0, set_bytes, allowed) != 0) {
        return;
    }
    unsigned left = index % (unsigned)CPU_COUNT_S(set_bytes, allowed);
    for (size_t cpu = 0; cpu < 8 * set_bytes; cpu++) {
        if (CPU_ISSET_S(cpu, set_bytes, allowed) && left-- == 0) {
            CPU_ZERO_S(set_bytes, one);
            CPU_SET_S(cpu, set_bytes, one);
            sched_setaffinity(0, set_bytes, one);
            return;
        }
    }
}

void frame_threads_run(unsigned count, void (*body)(unsigned index, void *argument),
                       void *argument) {
    struct frame_worker *workers = frame_map(count * sizeof *workers);
    pthread_barrier_t ready;
    pthread_barrier_init(&ready, NULL, count + 1);
    for (unsigned i = 0; i < count; i++) {
        workers[i] = (struct frame_worker){body, argument, &ready, 0, i};
        const int error = pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]);
        if (error != 0) {
            frame_fail_thread(error);
        }
    }
    /* The clock starts before the barrier opens: a woken worker may run before this thread does. */
    frame_start();
    pthread_barrier_wait(&ready);
    for (unsigned i = 0; i < count; i++) {
        pthread_join(workers[i].thread, NULL);
    }
    pthread_barrier_destroy(&ready);
}
