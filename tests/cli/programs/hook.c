// A library that hooks malloc and passes it on, as tracers do.
#include <dlfcn.h>
#include <stddef.h>

void *malloc(size_t bytes) {
    static void *(*next)(size_t);
    if (next == NULL) {
        next = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    }
    return next(bytes);
}
