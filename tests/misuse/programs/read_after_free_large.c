// A freed block read: malloc(200 * KIB). What it held must be gone in hardened mode.
#include "misuse.h"

#include "stale.h"

void mistake(void) {
    char *block = secret_block(200 * KIB);
    free(block);
    say_whether_stale((const char *)opaque_pointer(block), 200 * KIB);
}
