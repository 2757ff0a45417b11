// Faults planted between the core's parts, chosen by FUZZ_PLANTED: what fuzz_api must find. Linked
// with --wrap, so that calls from other files come here first.
#include <stdlib.h>
#include <string.h>

#include "heap/huge.h"
#include "heap/large.h"

void *__real_large_alloc(size_t bytes, size_t alignment, bool zero);
bool __real_huge_resize(struct huge *huge, size_t bytes);
void *__wrap_large_alloc(size_t bytes, size_t alignment, bool zero);
bool __wrap_huge_resize(struct huge *huge, size_t bytes);

static bool is_planted(const char *name) {
    const char *planted = getenv("FUZZ_PLANTED");
    return planted != NULL && strcmp(planted, name) == 0;
}

// A large block is taken for zero, wherever it comes from.
void *__wrap_large_alloc(size_t bytes, size_t alignment, bool zero) {
    return __real_large_alloc(bytes, alignment, zero && !is_planted("dirty"));
}

// A huge block that grows loses the last of its bytes.
bool __wrap_huge_resize(struct huge *huge, size_t bytes) {
    const size_t old_bytes = huge->usable_bytes;
    const bool done = __real_huge_resize(huge, bytes);
    if (done && bytes > old_bytes && is_planted("lost-tail")) {
        ((char *)huge->start)[old_bytes - 1] ^= 1;
    }
    return done;
}
