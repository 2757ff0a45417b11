// Freed blocks whose first words point to memory of the program: a free list would hand that out.
#include "misuse.h"

#include "aimed.h"

void mistake(void) {
    aim_free_blocks(208, false);
}
