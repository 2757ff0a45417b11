// Free of a block's place that was never handed out.
#include "misuse.h"

void mistake(void) {
    // One block alone; 640 divides its slab of 64 KiB into 102, and this thread's cache holds at
    // most 63 of them at first, so that one of the ends is still with the slab.
    char *block = (char *)malloc(639);
    require(block != NULL);
    size_t distance = block_distance(block);
    char *slab = (char *)((uintptr_t)block & ~(uintptr_t)65535);
    size_t index = (size_t)(block - slab) / distance;
    size_t count = 65536 / distance;
    char *bad = slab + (index < count / 2 ? count - 1 : 0) * distance;
    about(bad);
    behaviour_say("block 0x%zx %zu", (size_t)(uintptr_t)bad, distance);
    free(opaque_pointer(bad));
}
