// A large block freed by its owner and by another thread.
#include "meeting.h"

void mistake(void) {
    void *block = malloc(200 * KIB);
    require(block != NULL);
    about_block(block, block);
    free_then_by_another(block);
}
