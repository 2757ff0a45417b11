// Detached threads on stacks of the program's own that never allocate: glibc frees what belongs to each after the thread's last
// destructor, in that thread. They leave no cache behind.
#include "heaps.h"

enum { THREAD_COUNT = 300 };

static volatile int begun;

static void *begin(void *argument) {
    begun = 1;
    return argument;
}

// One of the process's threads that it waits for.
static bool is_alone(void) {
    static char status[64 * 1024];
    const int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    require(file >= 0);
    const ssize_t length = read(file, status, sizeof status - 1);
    close(file);
    require(length > 0);
    status[length] = '\0';
    const char *found = strstr(status, "\nThreads:");
    require(found != NULL);
    return strtol(found + strlen("\nThreads:"), NULL, 10) == 1;
}

static void run_one(void *stack, size_t bytes) {
    pthread_attr_t attributes;
    pthread_t thread;
    require(pthread_attr_init(&attributes) == 0);
    require(pthread_attr_setstack(&attributes, stack, bytes) == 0);
    require(pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0);
    begun = 0;
    require(pthread_create(&thread, &attributes, begin, NULL) == 0);
    require(pthread_attr_destroy(&attributes) == 0);
    while (!begun || !is_alone()) {
        usleep(100);
    }
}

int main(void) {
    behaviour_require_allocator();
    alarm(300);
    const size_t bytes = 256 * KIB;
    void *stack =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    require(stack != MAP_FAILED);
    free(malloc(100));
    run_one(stack, bytes);
    const long before = heaps_count();
    for (int i = 0; i < THREAD_COUNT; i++) {
        run_one(stack, bytes);
    }
    const long after = heaps_count();
    behaviour_say("%ld heaps, %ld after %d threads", before, after, THREAD_COUNT);
    require_that(after <= before + 1, "%ld heaps before, %ld after", before, after);
    behaviour_require_sound_heap();
    return 0;
}
