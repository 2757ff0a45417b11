// Free of a pointer 16 bytes before a block: inside the block below, which is live.
#include "misuse.h"

void mistake(void) {
    enum { COUNT = 512 };
    static char *blocks[COUNT];
    size_t distance = 0;
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = (char *)malloc(207);
        require(blocks[i] != NULL);
        distance = block_distance(blocks[i]);
    }
    for (int i = 0; i < COUNT; i++) {
        for (int below = 0; below < COUNT; below++) {
            if (blocks[below] + distance == blocks[i]) {
                about_block(blocks[i] - 16, blocks[below]);
                free(opaque_pointer(blocks[i] - 16));
                return;
            }
        }
    }
    about_block(blocks[COUNT / 2] - 16, blocks[COUNT / 2]);
    free(opaque_pointer(blocks[COUNT / 2] - 16));
}
