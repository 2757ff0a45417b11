// 4096 bytes written before a small block.
#include "misuse.h"

#include "stray.h"

void mistake(void) {
    struct neighbours blocks = take_neighbours(208);
    write_before(&blocks, 4096);
    free_neighbours(&blocks);
}
