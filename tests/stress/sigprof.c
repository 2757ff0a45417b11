// A profiling timer at 1 kHz whose handler does not allocate: it interrupts every part of malloc
// and free in four threads, and neither loses a block nor changes errno.
#include "behaviour.h"

#include <signal.h>
#include <sys/time.h>

enum { THREAD_COUNT = 4, KEPT_COUNT = 300 };

static uint64_t base_seed;

static _Atomic unsigned int ticks;
static _Atomic bool stop;

static void tick(int number) {
    (void)number;
    // Deep enough to overwrite whatever lies below the interrupted stack pointer's red zone.
    volatile char scratch[2048];
    for (size_t i = 0; i < sizeof scratch; i++) {
        scratch[i] = (char)i;
    }
    ticks++;
}

static void *work(void *argument) {
    uint64_t seed = random_stream(base_seed, (uint64_t)(uintptr_t)argument);
    void *kept[KEPT_COUNT] = {NULL};
    size_t sizes[KEPT_COUNT];
    while (!stop) {
        size_t at = random_below(&seed, KEPT_COUNT);
        if (kept[at] != NULL) {
            require(pattern_differs(kept[at], sizes[at], at) == sizes[at]);
            errno = 123;
            free(kept[at]);
            require(errno == 123);
        }
        sizes[at] = random_log_size(&seed, random_below(&seed, 100) == 0 ? 300000 : 2000);
        kept[at] = malloc(sizes[at]);
        require(kept[at] != NULL);
        pattern_fill(kept[at], sizes[at], at);
    }
    for (size_t at = 0; at < KEPT_COUNT; at++) {
        free(kept[at]);
    }
    return NULL;
}

int main(void) {
    behaviour_require_allocator();
    base_seed = behaviour_seed();
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    require(sigaction(SIGPROF, &action, NULL) == 0);
    struct itimerval every_ms = {{0, 1000}, {0, 1000}};
    require(setitimer(ITIMER_PROF, &every_ms, NULL) == 0);
    pthread_t threads[THREAD_COUNT];
    for (uintptr_t i = 0; i < THREAD_COUNT; i++) {
        start_thread(&threads[i], 0, work, (void *)(i + 1));
    }
    // The timer runs on processor time: on a busy machine this takes longer.
    uint64_t end = now_ms() + 300000;  // tests/patience.py
    while (ticks < 600 && now_ms() < end) {
        sleep_ms(20);
    }
    stop = true;
    for (int i = 0; i < THREAD_COUNT; i++) {
        require(pthread_join(threads[i], NULL) == 0);
    }
    behaviour_say("%u ticks", ticks);
    require(ticks >= 600);
    behaviour_require_sound_heap();
    return 0;
}
