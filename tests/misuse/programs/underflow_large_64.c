// 64 bytes written before a large block.
#include "misuse.h"

#include "stray.h"

void mistake(void) {
    struct neighbours blocks = take_neighbours(200 * KIB);
    write_before(&blocks, 64);
    free_neighbours(&blocks);
}
