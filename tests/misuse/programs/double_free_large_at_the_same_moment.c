// Two threads free the same large block at the same moment.
#include "meeting.h"

void mistake(void) {
    void *block = malloc(200 * KIB);
    require(block != NULL);
    about_block(block, block);
    free_by_two_at_once(block);
}
