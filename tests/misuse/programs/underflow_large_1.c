// 1 byte written before a large block.
#include "misuse.h"

#include "stray.h"

void mistake(void) {
    struct neighbours blocks = take_neighbours(200 * KIB);
    write_before(&blocks, 1);
    free_neighbours(&blocks);
}
