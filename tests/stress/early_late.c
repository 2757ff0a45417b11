// malloc at every moment of a process: in a library's constructor, in this program's preinit and
// init functions, in main, in atexit handlers, in destructors, and in a thread that goes on while
// exit() runs.
#include "behaviour.h"

void *early_block(void);
size_t early_bytes(void);

static void *from_preinit;
static void *from_constructor;
static _Atomic unsigned int steps;

static void preinit(int count, char **values, char **environment) {
    (void)count;
    (void)values;
    (void)environment;
    from_preinit = malloc(300);
    require(from_preinit != NULL);
    pattern_fill(from_preinit, 300, 2);
}

__attribute__((section(".preinit_array"), used)) static void (*preinit_entry)(int, char **,
                                                                              char **) = preinit;

__attribute__((constructor)) static void construct(void) {
    from_constructor = memalign(4096, 10000);
    require(from_constructor != NULL && aligned_to(from_constructor, 4096));
    pattern_fill(from_constructor, 10000, 3);
}

static void *go_on(void *argument) {
    (void)argument;
    uint64_t seed = 9;
    for (;;) {
        char *block = (char *)malloc(random_log_size(&seed, 20000));
        require(block != NULL);
        block[0] = 1;
        free(block);
        steps++;
    }
}

static void at_exit_second(void) {
    require(pattern_differs(from_preinit, 300, 2) == 300);
    free(from_preinit);
    // The other thread goes on while this runs.
    unsigned int before = steps;
    for (int i = 0; i < 1000 && steps < before + 100; i++) {
        void *block = malloc(1000);
        require(block != NULL);
        free(block);
        sleep_ms(1);
    }
    require(steps >= before + 100);
    behaviour_say("atexit");
}

static void at_exit_first(void) {
    void *block = calloc(1, 300000);
    require(block != NULL && all_zero(block, 300000));
    free(block);
    // A handler registered while handlers run.
    require(atexit(at_exit_second) == 0);
}

__attribute__((destructor)) static void destruct(void) {
    require(pattern_differs(from_constructor, 10000, 3) == 10000);
    from_constructor = realloc(from_constructor, 20000);
    require(pattern_differs(from_constructor, 10000, 3) == 10000);
    free(from_constructor);
    behaviour_say("destructor of the program");
}

int main(void) {
    behaviour_require_allocator();
    require(from_preinit != NULL && from_constructor != NULL);
    require(pattern_differs(early_block(), early_bytes(), 1) == early_bytes());
    require(atexit(at_exit_first) == 0);
    pthread_t thread;
    start_thread(&thread, 0, go_on, NULL);
    while (steps < 1000) {
        sleep_ms(1);
    }
    behaviour_require_sound_heap();
    exit(0);
}
