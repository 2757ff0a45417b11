// Huge blocks of which little is touched cost what is touched, and nothing stays of them when they are freed: their entries in the map
// of pages go with them, without being asked for.
#include "load.h"

#include <sys/prctl.h>

enum { COUNT = 256 };

// hakmem knows each block's 64 KiB by an entry of 8 bytes.
#define ENTRIES_BYTES (GIB / (64 * KIB) * 8)
#define SPREAD_BYTES (2 * MIB)

int main(void) {
    static char *blocks[COUNT];
    // Where the system gives huge pages to who asks for none, 2 MiB are touched at once.
    require(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);
    behaviour_require_allocator();
    free(malloc(opaque(GIB)));
    const size_t before = rss_bytes();
    for (int i = 0; i < COUNT; i++) {
        require((blocks[i] = (char *)malloc(GIB)) != NULL);
        blocks[i][0] = 1;
    }
    const size_t full = rss_bytes();
    for (int i = 0; i < COUNT; i++) {
        free(blocks[i]);
    }
    const size_t freed = rss_bytes();
    malloc_trim(0);
    const size_t after = rss_bytes();
    behaviour_say(
        "%d blocks of 1 GiB: %zu KiB resident before, %zu with them, %zu freed, %zu trimmed", COUNT,
        before / KIB, full / KIB, freed / KIB, after / KIB);
    const size_t cost = COUNT * ((size_t)sysconf(_SC_PAGESIZE) + ENTRIES_BYTES);
    require_that(full < before + cost + SPREAD_BYTES, "%zu KiB for blocks that are not used",
                 (full - before) / KIB);
    require_that(freed < before + SPREAD_BYTES, "%zu KiB stay before a trim",
                 (freed - before) / KIB);
    require_that(after < before + SPREAD_BYTES, "%zu KiB stay", (after - before) / KIB);
    return 0;
}
