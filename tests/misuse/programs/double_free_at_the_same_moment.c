// Two threads free a third one's block at the same moment.
#include "meeting.h"

void mistake(void) {
    void *block = malloc(208);
    require(block != NULL);
    about_block(block, block);
    free_by_two_at_once(block);
}
