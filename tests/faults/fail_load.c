// The load that fail_calls.c runs while system calls fail. It says "main" when it starts; after the
// marker no call fails any more, nothing may be refused, and everything is freed: the last line tells
// what was refused before and what the process holds at the end.
#include "load.h"

#include <sys/syscall.h>

#include "hakmem.h"
#include "marker.h"

extern void hakmem_totals(struct hakmem_totals *totals) __attribute__((weak));

enum { THREAD_BLOCK_COUNT = 40 };

static void *handed[THREAD_BLOCK_COUNT];
// Threads and processes that the system refused to start.
static unsigned int unstarted;

// Frees what the starter made, and makes what the starter frees.
static void *in_thread(void *argument) {
    (void)argument;
    for (size_t i = 0; i < THREAD_BLOCK_COUNT; i++) {
        load_free(handed[i]);
        errno = 0;
        handed[i] = malloc(100 * i * i);
        (void)load_refused(handed[i]);
    }
    return NULL;
}

static void start_and_join(void) {
    for (size_t i = 0; i < THREAD_BLOCK_COUNT; i++) {
        errno = 0;
        handed[i] = malloc(50 * i * i);
        (void)load_refused(handed[i]);
    }
    pthread_attr_t attributes;
    require(pthread_attr_init(&attributes) == 0);
    require(pthread_attr_setstacksize(&attributes, 64 * KIB) == 0);
    pthread_t thread;
    int error = pthread_create(&thread, &attributes, in_thread, NULL);
    // libc allocates for a thread too, and answers EAGAIN when it cannot.
    require_that(error == 0 || error == EAGAIN || error == EPERM, "pthread_create: error %d",
                 error);
    unstarted += error != 0;
    require(error != 0 || pthread_join(thread, NULL) == 0);
    for (size_t i = 0; i < THREAD_BLOCK_COUNT; i++) {
        load_free(handed[i]);
    }
}

static void fork_and_wait(void) {
    pid_t child = fork();
    if (child == 0) {
        void *block = malloc(50000);
        free(block);
        _exit(0);
    }
    require(child > 0 || errno == EAGAIN || errno == ENOMEM || errno == EPERM);
    unstarted += child < 0;
    int status = -1;
    require(child < 0 || waitpid(child, &status, 0) == child);
    require(child < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

// One size after another, to one end, so that one refusal does not end it.
static void each_size(void) {
    enum { COUNT = 20 };
    for (size_t bytes = 16; bytes < 70000; bytes = bytes * 2 + 16) {
        void *blocks[COUNT];
        for (int i = 0; i < COUNT; i++) {
            errno = 0;
            blocks[i] = malloc(bytes);
            if (!load_refused(blocks[i])) {
                memset(blocks[i], 1, bytes);
            }
        }
        for (int i = 0; i < COUNT; i++) {
            load_free(blocks[i]);
        }
    }
}

// A buffer that grows and shrinks through every kind of block.
static void grow_and_shrink(void) {
    char *buffer = NULL;
    size_t held = 0;
    for (size_t bytes = 1000; bytes < 24 * MIB; bytes *= 3) {
        errno = 0;
        char *grown = (char *)realloc(buffer, bytes);
        if (!load_refused(grown)) {
            require(held == 0 || (grown[0] == 'b' && grown[held - 1] == 'e'));
            buffer = grown;
            held = bytes;
            buffer[0] = 'b';
            buffer[held - 1] = 'e';
        }
    }
    bool served = true;
    while (served && held > 1000) {
        errno = 0;
        char *shrunk = (char *)realloc(buffer, held / 3);
        served = !load_refused(shrunk);
        buffer = served ? shrunk : buffer;
        require(buffer[0] == 'b');
        held /= 3;
    }
    load_free(buffer);
}

// What was written and given back, or kept because the system would not take it, is zero again.
static void zeroed_after_use(void) {
    for (size_t bytes = 3000; bytes < 8 * MIB; bytes *= 12) {
        errno = 0;
        char *used = (char *)malloc(bytes);
        if (!load_refused(used)) {
            memset(used, 0xee, bytes);
        }
        load_free(used);
        malloc_trim(0);
        errno = 0;
        char *zeroed = (char *)calloc(1, bytes);
        require_that(load_refused(zeroed) || all_zero(zeroed, bytes),
                     "calloc of %zu bytes is not zero", bytes);
        load_free(zeroed);
    }
}

static void pass(void) {
    each_size();
    load_grow(3 * MIB, 200 * KIB);
    load_shrink(3);
    load_grow(8 * MIB, 5 * MIB);
    load_every_entry_point(100);
    load_every_entry_point(100000);
    load_every_entry_point(3 * MIB);
    grow_and_shrink();
    errno = 0;
    void *aligned = memalign(16 * MIB, 100000);
    (void)load_refused(aligned);
    require(aligned_to(aligned, 16 * MIB));
    load_free(aligned);
    zeroed_after_use();
    start_and_join();
    fork_and_wait();
    load_shrink(1);
    malloc_trim(0);
}

int main(void) {
    behaviour_say("main");
    behaviour_require_allocator();
    pass();
    behaviour_require_sound_heap();
    const unsigned int refused = load_refusals();
    const unsigned int bursts = load_bursts();
    const unsigned int unstarted_before = unstarted;
    syscall(SYS_mprotect, FAULTS_MARKER, 0, 0);
    pass();
    require_that(load_refusals() == refused && unstarted == unstarted_before,
                 "%u requests refused after the failures had ended", load_refusals() - refused);
    malloc_trim(0);
    behaviour_require_sound_heap();
    struct hakmem_totals totals = {0};
    if (hakmem_totals != NULL) {
        hakmem_totals(&totals);
    }
    behaviour_say("refused %u bursts %u unstarted %u mapped %zu rss %zu blocks %zu", refused,
                  bursts, unstarted, proc_kb_line("/proc/self/status", "\nVmSize:") / KIB,
                  rss_bytes() / KIB, (size_t)totals.live_blocks);
    return 0;
}
