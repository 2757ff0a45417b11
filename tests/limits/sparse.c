// Huge blocks of which little is touched cost what is touched, and nothing stays of them when they are freed: their entries in the map
// of pages go with them.
#include "load.h"

enum { COUNT = 256 };

int main(void) {
    static char *blocks[COUNT];
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
    malloc_trim(0);
    const size_t after = rss_bytes();
    behaviour_say("%d blocks of 1 GiB: %zu KiB resident before, %zu with them, %zu after", COUNT,
                  before / KIB, full / KIB, after / KIB);
    require_that(after < before + 2 * MIB, "%zu KiB stay", (after - before) / KIB);
    return 0;
}
