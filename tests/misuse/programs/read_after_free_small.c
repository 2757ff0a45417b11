// A freed block read: malloc(208). What it held must be gone in hardened mode.
#include "misuse.h"

#include "stale.h"

void mistake(void) {
    char *block = secret_block(208);
    free(block);
    say_whether_stale((const char *)opaque_pointer(block), 208);
}
