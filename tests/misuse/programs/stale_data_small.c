// New blocks show what freed ones held, which must be gone in hardened mode.
#include "misuse.h"

#include "stale.h"

void mistake(void) {
    look_into_new_blocks(208, 4000);
}
