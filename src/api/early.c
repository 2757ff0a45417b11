// The shared library's very first step. glibc gives thread-local words their initial values after it
// has relocated all objects, but calls resolvers of indirect functions before, in the program and in
// libraries that are relocated later than this one. A resolver that allocates would find NULL where
// the fast paths need a cache. So this library has a resolver too, which the loader calls as the last
// step of relocating it; the initial value that follows is the same.
//
// Not in the archive: in a static program resolvers run before there is thread-local memory at all.
#include "thread/lifecycle.h"

#include "thread/cache.h"

#if defined(__GLIBC__)
__attribute__((used)) static void (*set_first_cache(void))(void) {
    thread_cache = (struct thread_cache *)(uintptr_t)&cache_of_new_thread;
    return lifecycle_start;
}

static void start_early(void) __attribute__((ifunc("set_first_cache")));
__attribute__((used)) static void (*const resolved_early)(void) = start_early;
#endif
