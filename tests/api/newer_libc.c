// A process whose C library tells that it is newer than the one that hakmem was built with: aligned_alloc refuses what is no
// power of two there, as C17 wants it; memalign still rounds it up.
#include "behaviour.h"

const char *gnu_get_libc_version(void);
const char *gnu_get_libc_version(void) {
    return "2.39";
}

int main(void) {
    behaviour_require_allocator();
    static const size_t odd[] = {0, 3, 24, 5000, 3 << 20};
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        errno = 0;
        require(aligned_alloc(opaque(odd[i]), 100) == NULL && errno == EINVAL);
        void *block = memalign(opaque(odd[i]), 100);
        require(block != NULL);
        free(block);
    }
    for (size_t alignment = 1; alignment <= 4096; alignment *= 2) {
        void *block = aligned_alloc(opaque(alignment), 100);
        require(block != NULL && (uintptr_t)block % alignment == 0);
        free(block);
    }
    behaviour_require_sound_heap();
    return 0;
}
