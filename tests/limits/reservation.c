// A process whose address space is limited has more than half of that for itself, whatever the allocator reserves.
#include "load.h"

#include <sys/mman.h>
#include <sys/resource.h>

int main(int count, char **values) {
    (void)count;
    behaviour_require_allocator();
    const size_t limit = 20 * 1024 * MIB;
    if (getenv("LIMIT_IS_SET") == NULL) {
        struct rlimit soft = {limit, RLIM_INFINITY};
        require(setenv("LIMIT_IS_SET", "1", 1) == 0);
        require(setrlimit(RLIMIT_AS, &soft) == 0);
        execv("/proc/self/exe", values);
        require_that(false, "exec: errno %d", errno);
    }
    load_complete(16 * MIB);
    void *half =
        mmap(NULL, limit / 2, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    require_that(half != MAP_FAILED, "half of the limit cannot be mapped: errno %d", errno);
    require(munmap(half, limit / 2) == 0);
    behaviour_require_sound_heap();
    return 0;
}
