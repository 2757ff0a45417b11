// Freed blocks of 16 bytes whose words point to memory of the program.
#include "misuse.h"

#include "aimed.h"

void mistake(void) {
    aim_free_blocks(16, false);
}
