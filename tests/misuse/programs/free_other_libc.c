// Free of a block from a second libc, loaded into a namespace of its own.
#include "misuse.h"

void mistake(void) {
    void *libc = dlmopen(LM_ID_NEWLM, "libc.so.6", RTLD_NOW);
    require_that(libc != NULL, "%s", dlerror());
    void *(*other_malloc)(size_t) = (void *(*)(size_t))(uintptr_t)dlsym(libc, "malloc");
    require(other_malloc != NULL);
    void *bad = other_malloc(100);
    require(bad != NULL);
    about(bad);
    free(bad);
}
