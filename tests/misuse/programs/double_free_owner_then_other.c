// The owner frees a block, then another thread frees it.
#include "meeting.h"

void mistake(void) {
    void *block = malloc(208);
    require(block != NULL);
    about_block(block, block);
    free_then_by_another(block);
}
