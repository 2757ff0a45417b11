// The earliest moment there is: a resolver that chooses a function while the loader still relocates
// the program allocates, by every name, and what it made serves until main.
#include "behaviour.h"

static char *kept;
static void *aligned;
static unsigned int failures;

static int chosen(void) {
    return 17;
}

__attribute__((used)) static int (*choose(void))(void) {
    void *blocks[200];
    for (size_t i = 0; i < 200; i++) {
        blocks[i] = i % 2 == 0 ? malloc(i * 40 + 1) : calloc(i, 50);
        failures += blocks[i] == NULL;
    }
    for (size_t i = 0; i < 200; i++) {
        free(blocks[i]);
    }
    kept = (char *)realloc(malloc(100), 70000);
    aligned = memalign(4096, 3 << 20);
    failures += kept == NULL || aligned == NULL;
    if (failures == 0) {
        kept[0] = 'k';
        kept[69999] = 'e';
    }
    return chosen;
}

int by_resolver(void) __attribute__((ifunc("choose")));

int main(void) {
    behaviour_require_allocator();
    require(by_resolver() == 17);
    // The options hold from then on: hardened tells the request as the size.
    const char *mode = getenv("HAKMEM_MODE");
    void *block = malloc(100);
    require(mode == NULL || (malloc_usable_size(block) == 100) == (strcmp(mode, "hardened") == 0));
    free(block);
    require(failures == 0 && kept != NULL && kept[0] == 'k' && kept[69999] == 'e');
    require(aligned_to(aligned, 4096) && malloc_usable_size(aligned) >= 3 << 20);
    kept = (char *)realloc(kept, 200);
    require(kept != NULL && kept[0] == 'k');
    free(kept);
    free(aligned);
    behaviour_require_sound_heap();
    return 0;
}
