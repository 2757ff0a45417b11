// 1 byte written behind a small block.
#include "misuse.h"

#include "stray.h"

void mistake(void) {
    struct neighbours blocks = take_neighbours(208);
    write_behind(&blocks, 1);
    free_neighbours(&blocks);
}
