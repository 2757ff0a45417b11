// The same with the pointers masked by the block's place, as several free lists keep them.
#include "misuse.h"

#include "aimed.h"

void mistake(void) {
    aim_free_blocks(208, true);
}
