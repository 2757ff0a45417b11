// The first calls of a process may be any but malloc: nothing has been set up then.
#include "behaviour.h"

int main(void) {
    // Nothing to give back; what matters is that it returns.
    malloc_trim(0);
    require(malloc_usable_size(NULL) == 0);
    free(NULL);
    malloc_stats();
    struct mallinfo2 figures = mallinfo2();
    require(figures.uordblks <= MIB);
    behaviour_require_sound_heap();
    behaviour_require_allocator();
    void *block = malloc(10);
    require(block != NULL);
    free(block);
    return 0;
}
