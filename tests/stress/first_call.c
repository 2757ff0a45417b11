// The first calls of a process may be any but malloc: nothing has been set up then.
#include "behaviour.h"

static void nothing(void) {
}

static void *use_malloc(void) {
    return malloc(10);
}

static void *use_calloc(void) {
    return calloc(10, 10);
}

static void *use_calloc_large(void) {
    return calloc(1, 100 * KIB);
}

static void *use_calloc_huge(void) {
    return calloc(1, 3 * MIB);
}

static void *use_realloc(void) {
    return realloc(NULL, 10);
}

static void *use_memalign(void) {
    return memalign(64, 100);
}

static void *use_memalign_none(void) {
    return memalign(4 * KIB, 0);
}

static void *use_aligned_alloc_large(void) {
    return aligned_alloc(4 * KIB, 100 * KIB);
}

static void *use_posix_memalign_huge(void) {
    void *block = NULL;
    return posix_memalign(&block, 8 * MIB, 1) == 0 ? block : NULL;
}

static void *use_atfork(void) {
    return pthread_atfork(nothing, nothing, nothing) == 0 ? malloc(10) : NULL;
}

static void *use_fork(void) {
    const pid_t child = fork();
    if (child == 0) {
        _exit(malloc(10) == NULL);
    }
    int status = -1;
    return waitpid(child, &status, 0) == child && status == 0 ? malloc(10) : NULL;
}

static void *use_refused(void) {
    void *block = NULL;
    return posix_memalign(&block, 3, 1) == EINVAL && malloc(opaque(SIZE_MAX)) == NULL &&
                   memalign(opaque(SIZE_MAX), 1) == NULL
               ? malloc(10)
               : NULL;
}

static void *(*const first_calls[])(void) = {
    use_malloc,   use_calloc,        use_calloc_large,        use_calloc_huge,         use_realloc,
    use_memalign, use_memalign_none, use_aligned_alloc_large, use_posix_memalign_huge, use_atfork,
    use_fork,     use_refused,
};

// In children of a process that has not allocated either.
static void try_each(void) {
    for (size_t i = 0; i < sizeof first_calls / sizeof first_calls[0]; i++) {
        const pid_t child = fork();
        require(child >= 0);
        if (child == 0) {
            void *block = first_calls[i]();
            require(block != NULL);
            memset(block, 1, 1);
            free(block);
            behaviour_require_sound_heap();
            _exit(0);
        }
        int status = -1;
        require(waitpid(child, &status, 0) == child);
        require_that(status == 0, "first call %zu: the process ended with status %d", i, status);
    }
}

int main(void) {
    try_each();
    // Nothing to give back; what matters is that it returns.
    malloc_trim(0);
    require(malloc_usable_size(NULL) == 0);
    free(NULL);
    malloc_stats();
    struct mallinfo2 figures = mallinfo2();
    require(figures.uordblks <= MIB);
    behaviour_require_sound_heap();
    behaviour_require_allocator();
    void *block = malloc(10);
    require(block != NULL);
    free(block);
    return 0;
}
