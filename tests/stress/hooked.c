// Runs with a second malloc-replacing library preloaded before or after hakmem.
#include "behaviour.h"

extern unsigned long hook_calls(void) __attribute__((weak));

static void *work(void *argument) {
    uint64_t seed = (uint64_t)(uintptr_t)argument;
    for (int i = 0; i < 20000; i++) {
        char *block = (char *)malloc(random_log_size(&seed, 5000));
        require(block != NULL);
        block[0] = 1;
        block = (char *)realloc(block, random_log_size(&seed, 5000));
        require(block != NULL);
        void *zeroed = calloc(1, 100);
        require(zeroed != NULL);
        free(block);
        free(zeroed);
    }
    return NULL;
}

int main(int count, char **values) {
    require_that(count == 2, "usage: hooked first|second");
    require_that(behaviour_on_hakmem() && hook_calls != NULL, "both libraries must be preloaded");
    pthread_t threads[2];
    for (uintptr_t i = 0; i < 2; i++) {
        start_thread(&threads[i], 0, work, (void *)(i + 1));
    }
    for (int i = 0; i < 2; i++) {
        require(pthread_join(threads[i], NULL) == 0);
    }
    // Before hakmem it sees every call; behind it none of the program's.
    unsigned long seen = hook_calls();
    require(strcmp(values[1], "first") == 0 ? seen > 100000 : seen < 1000);
    behaviour_require_sound_heap();
    return 0;
}
