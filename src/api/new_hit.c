// The plain form of C++ operator new in the shared library: hits as malloc does, without a call of it. The other forms, and
// what becomes of a failure, are in new.cc. (In the archive this would bring the C++ runtime into C programs.)
#include "api/alloc.h"

EXPORTED void *_Znwm(size_t bytes);

// The library's own, whatever is in force.
void *hakmem_own_new(size_t bytes) __attribute__((alias("_Znwm"), visibility("hidden")));

// new.cc: the new_handler, then std::bad_alloc.
void *hakmem_new_retry(size_t bytes);

MIDDLE_PATH static void *new_slow(size_t bytes) {
    void *block = alloc_slow(bytes);
    return likely(block != NULL) ? block : hakmem_new_retry(bytes);
}

EXPORTED_FAST void *_Znwm(size_t bytes) {
    void *block = alloc_hit(bytes);
    return likely(block != NULL) ? block : new_slow(bytes);
}
