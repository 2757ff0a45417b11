// A freed block read: malloc(8192). What it held must be gone in hardened mode.
#include "misuse.h"

#include "stale.h"

void mistake(void) {
    char *block = secret_block(8192);
    free(block);
    say_whether_stale((const char *)opaque_pointer(block), 8192);
}
