// Threads whose cache nothing takes away: their first call comes in one of the last rounds of key destructors that the C library
// grants, there was no key left for the allocator, or they end by a system call of their own. Their heaps go to later threads.
#include "heaps.h"

#include <limits.h>
#include <sys/syscall.h>

enum { THREAD_COUNT = 400, HEAPS_MORE_MAX = 16 };

enum call { MALLOC, FREE };

static pthread_key_t key;
static unsigned first_round;
static enum call first_call;
static void *freed;

static void call_malloc(void) {
    unsigned char *block = malloc(opaque(40));
    require(block != NULL);
    block[39] = 1;
    free(block);
}

static void in_round(void *value) {
    const uintptr_t round = (uintptr_t)value;
    if (round < first_round) {
        require(pthread_setspecific(key, (void *)(round + 1)) == 0);
    } else if (first_call == MALLOC) {
        call_malloc();
    } else {
        free(freed);
    }
}

static void *set_key(void *argument) {
    require(pthread_setspecific(key, (void *)(uintptr_t)1) == 0);
    return argument;
}

static void *just_allocate(void *argument) {
    call_malloc();
    return argument;
}

static _Atomic int ended;

static void *leave(void *argument) {
    call_malloc();
    ended++;
    syscall(SYS_exit, 0);
    return argument;
}

// A thread whose first call is made by the child of its vfork, in its memory and with another number: its cache is not gone.
static void *call_behind_vfork(void *argument) {
    pthread_barrier_t *barrier = argument;
    const pid_t child = vfork();
    if (child == 0) {
        call_malloc();
        _exit(0);
    }
    int status;
    require(waitpid(child, &status, 0) == child);
    require(status == 0);
    static void *blocks[2000];
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < 2000; i++) {
            require((blocks[i] = malloc(64)) != NULL);
            memset(blocks[i], 1, 64);
        }
        for (int i = 0; i < 2000; i++) {
            require(*(unsigned char *)blocks[i] == 1);
            memset(blocks[i], 0, 64);
            free(blocks[i]);
        }
        if (round == 0) {
            pthread_barrier_wait(barrier);
        }
    }
    pthread_barrier_wait(barrier);
    return NULL;
}

static void *call_beside(void *argument) {
    static __thread void *blocks[2000];
    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < 2000; i++) {
            require((blocks[i] = malloc(64)) != NULL);
            memset(blocks[i], 2, 64);
        }
        for (int i = 0; i < 2000; i++) {
            require(*(unsigned char *)blocks[i] == 2);
            free(blocks[i]);
        }
    }
    return argument;
}

static void require_own_caches(void) {
    pthread_barrier_t barrier;
    require(pthread_barrier_init(&barrier, NULL, 2) == 0);
    pthread_t first, others[4];
    start_thread(&first, 256 * KIB, call_behind_vfork, &barrier);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 4; i++) {
        start_thread(&others[i], 256 * KIB, call_beside, NULL);
    }
    for (int i = 0; i < 4; i++) {
        require(pthread_join(others[i], NULL) == 0);
    }
    pthread_barrier_wait(&barrier);
    require(pthread_join(first, NULL) == 0);
    behaviour_require_sound_heap();
}

static void require_few_heaps(const char *what, long before) {
    const long after = heaps_count();
    behaviour_say("%s: %ld heaps, %ld after %d threads", what, before, after, THREAD_COUNT);
    require_that(after <= before + HEAPS_MORE_MAX, "%s: %ld heaps before, %ld after", what, before,
                 after);
    behaviour_require_sound_heap();
}

static void run_threads(const char *what, void *(*body)(void *)) {
    const long before = heaps_count();
    for (int i = 0; i < THREAD_COUNT; i++) {
        pthread_t thread;
        freed = malloc(40);
        start_thread(&thread, 64 * KIB, body, NULL);
        require(pthread_join(thread, NULL) == 0);
    }
    require_few_heaps(what, before);
}

// They cannot be joined: who ends so tells nobody. Detached, on stacks that stay.
static void run_threads_that_leave(void) {
    const long before = heaps_count();
    pthread_attr_t attributes;
    require(pthread_attr_init(&attributes) == 0);
    require(pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0);
    require(pthread_attr_setstacksize(&attributes, 64 * KIB) == 0);
    for (int i = 0; i < THREAD_COUNT; i++) {
        pthread_t thread;
        require(pthread_create(&thread, &attributes, leave, NULL) == 0);
        while (ended <= i) {
            usleep(50);
        }
        usleep(200);
    }
    require_few_heaps("threads that end by a system call", before);
}

// In a child: before its allocator has asked for a key. glibc gives 1,024.
static void without_keys(void) {
    pthread_key_t taken;
    for (int i = 0; i < PTHREAD_KEYS_MAX && pthread_key_create(&taken, NULL) == 0; i++) {
    }
}

int main(int argument_count, char **arguments) {
    (void)arguments;
    alarm(300);
    if (argument_count > 1) {
        without_keys();
        behaviour_require_allocator();
        run_threads("no key left", just_allocate);
        return 0;
    }
    behaviour_require_allocator();
    free(malloc(10));
    require_own_caches();
    require(pthread_key_create(&key, in_round) == 0);
    for (first_round = 1; first_round <= PTHREAD_DESTRUCTOR_ITERATIONS; first_round++) {
        first_call = MALLOC;
        run_threads("first malloc in a late round", set_key);
        first_call = FREE;
        run_threads("first free in a late round", set_key);
    }
    run_threads_that_leave();
    return 0;
}
