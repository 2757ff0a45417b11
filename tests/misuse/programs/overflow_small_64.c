// 64 bytes written behind a small block.
#include "misuse.h"

#include "stray.h"

void mistake(void) {
    struct neighbours blocks = take_neighbours(208);
    write_behind(&blocks, 64);
    free_neighbours(&blocks);
}
