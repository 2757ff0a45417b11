// Threads that register handlers of fork beside one that forks: the C library allocates under the lock of its list of handlers, which
// fork takes again behind each of them. Many heaps make the time between the two long.
#include "behaviour.h"

enum { THREAD_COUNT = 3000, HANDLER_COUNT = 20000, ROUND_COUNT = 60 };

static pthread_mutex_t park = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int begun;
static _Atomic int registered;

static void *begin(void *argument) {
    free(malloc(opaque(10)));
    begun++;
    require(pthread_mutex_lock(&park) == 0);
    require(pthread_mutex_unlock(&park) == 0);
    return argument;
}

static void make_heaps(void) {
    static pthread_t threads[THREAD_COUNT];
    pthread_attr_t attributes;
    require(pthread_attr_init(&attributes) == 0);
    require(pthread_attr_setstacksize(&attributes, 64 * KIB) == 0);
    require(pthread_mutex_lock(&park) == 0);
    // As many as the system lets be at once: a container may have fewer.
    int count = 0;
    while (count < THREAD_COUNT && pthread_create(&threads[count], &attributes, begin, NULL) == 0) {
        count++;
    }
    require_that(count >= 500, "only %d threads can be at once", count);
    while (begun < count) {
        usleep(1000);
    }
    require(pthread_mutex_unlock(&park) == 0);
    for (int i = 0; i < count; i++) {
        require(pthread_join(threads[i], NULL) == 0);
    }
}

static void *register_handlers(void *argument) {
    for (registered = 0; registered < HANDLER_COUNT; registered++) {
        require(pthread_atfork(NULL, NULL, NULL) == 0);
    }
    return argument;
}

static void wait_for(pid_t child) {
    int status;
    require(child >= 0);
    require(waitpid(child, &status, 0) == child);
    require_that(status == 0, "status %#x", (unsigned int)status);
}

// In a process of its own, whose list of handlers is short at first.
static void fork_beside(void) {
    pthread_t thread;
    start_thread(&thread, 0, register_handlers, NULL);
    do {
        const pid_t child = fork();
        if (child == 0) {
            _exit(0);
        }
        wait_for(child);
    } while (registered < HANDLER_COUNT);
    require(pthread_join(thread, NULL) == 0);
}

int main(void) {
    behaviour_require_allocator();
    alarm(300);
    make_heaps();
    for (int i = 0; i < ROUND_COUNT; i++) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(300);
            fork_beside();
            behaviour_require_sound_heap();
            _exit(0);
        }
        wait_for(child);
    }
    return 0;
}
