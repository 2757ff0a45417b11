// The first words of a freed block overwritten: malloc(64 * MIB).
#include "misuse.h"

void mistake(void) {
    char *block = (char *)malloc(64 * MIB);
    require(block != NULL);
    memset(block, 0x55, 4096);
    about_block(block, block);
    free(block);
    memset(opaque_pointer(block), 0x41, 16);
}
