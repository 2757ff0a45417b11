// Builds with HAKMEM_COUNT_SHARING count each atomic read-modify-write operation where it stands, for
// docs/SCALING.md. In every other build the operations of base/atomic.h are themselves, and nothing is left of this.
#pragma once

#include <stdint.h>

#if defined(HAKMEM_COUNT_SHARING)

// Relaxed: the counts are read when the process exits; pairs with nothing.
static inline void sharing_count(uint64_t *count) {
    __atomic_fetch_add(count, 1, __ATOMIC_RELAXED);
}

// One place in the source. The linker makes an array of all of them; an inline function has one in each
// file that uses it.
struct sharing_site {
    const char *file;  // that is compiled: what an inline function does counts where it is used
    const char *operation;  // as "or_acq_rel &slab->remote_bits[word]"
    uint64_t count;
};

#define SHARING_COUNTED(name, operation)                                                   \
    __extension__({                                                                        \
        static struct sharing_site sharing_here                                            \
            __attribute__((section("sharing_sites"), aligned(sizeof(uint64_t)), used)) = { \
                __BASE_FILE__, (name), 0};                                                 \
        sharing_count(&sharing_here.count);                                                \
        (operation);                                                                       \
    })

#else

#define SHARING_COUNTED(name, operation) (operation)

#endif
