// 4096 bytes written behind a large block.
#include "misuse.h"

#include "stray.h"

void mistake(void) {
    struct neighbours blocks = take_neighbours(200 * KIB);
    write_behind(&blocks, 4096);
    free_neighbours(&blocks);
}
