// Under Valgrind's memcheck, which takes the place of the functions that it knows and not of all: a block of any of
// them may be given to any other, and no error is found in a program that has none.
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

extern const char *hakmem_version(void) __attribute__((weak));

// The first and the last byte are the program's.
static void use(void *block, size_t bytes) {
    if (block == NULL) {
        abort();
    }
    memset(block, 1, bytes);
    free(realloc(block, bytes + 1));
}

int main(void) {
    if (hakmem_version == NULL) {
        return 2;
    }
    static const size_t sizes[] = {1, 100, 5000, 100000, 3 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const size_t bytes = sizes[i];
        use(malloc(bytes), bytes);
        use(calloc(bytes, 2), 2 * bytes);
        use(realloc(NULL, bytes), bytes);
        use(realloc(malloc(3), bytes), bytes);
        use(reallocarray(NULL, bytes, 2), 2 * bytes);
        use(reallocarray(malloc(3), bytes, 2), 2 * bytes);
        use(memalign(64, bytes), bytes);
        use(aligned_alloc(64, bytes), bytes);
        use(valloc(bytes), bytes);
        use(pvalloc(bytes), bytes);
        void *block = NULL;
        if (posix_memalign(&block, 256, bytes) != 0 || malloc_usable_size(block) < bytes) {
            return 3;
        }
        use(block, bytes);
        use(strdup("text"), 5);
    }
    // Valgrind's own memory counts: for addresses that are only reserved it needs none.
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 && usage.ru_maxrss < 1 << 20 ? 0 : 4;
}
