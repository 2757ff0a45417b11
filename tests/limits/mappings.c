// The number of mappings is exhausted (vm.max_map_count): mmap, munmap and mprotect fail with
// ENOMEM, also munmap in the middle of a mapping. Blocks from before are freed in that state.
#include "load.h"

// More than the kernel has memory for cannot be used up.
enum { COUNT_MOST = 1 << 21 };

static char *region;
static size_t region_bytes;

static unsigned long read_count_max(void) {
    FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
    require(file != NULL);
    unsigned long count_max = 0;
    require(fscanf(file, "%lu", &count_max) == 1);
    fclose(file);
    return count_max;
}

// Splits one long mapping into alternating ones until the system refuses; gives `spare` pairs back.
static void exhaust(size_t spare) {
    size_t page = 4096;
    region_bytes = (read_count_max() + 1024) * page;
    region = (char *)test_memory(region_bytes);
    size_t at = page;
    int result = 0;
    while (at < region_bytes && result == 0) {
        result = mprotect(region + at, page, PROT_NONE);
        at += 2 * page;
    }
    require_that(result != 0 && errno == ENOMEM, "mappings are not limited here");
    at -= 2 * page;
    for (size_t i = 1; i <= spare; i++) {
        require(mprotect(region + at - 2 * i * page, page, PROT_READ | PROT_WRITE) == 0);
    }
}

int main(void) {
    behaviour_require_allocator();
    require_that(
        read_count_max() <= COUNT_MOST,
        "vm.max_map_count is %lu: to use that up takes the machine's memory; 65530 will do",
        read_count_max());
    for (size_t spare = 0; spare <= 12; spare += 4) {
        // Live blocks of every kind, huge ones among them.
        load_grow(96 * MIB, 20 * MIB);
        require(load_refusals() == 0 || spare > 0);
        size_t before = load_live();
        exhaust(spare);
        unsigned int refused = load_refusals();
        for (int round = 0; round < 20; round++) {
            load_shrink(3);
            load_grow(before, round % 2 == 0 ? 20 * MIB : 100 * KIB);
            load_every_entry_point((size_t)16 << round);
        }
        load_shrink(1);
        behaviour_say("%zu pairs of mappings left: %u refusals", spare, load_refusals() - refused);
        load_grow(8 * MIB, 4000);
        load_shrink(1);
        behaviour_require_sound_heap();
        require(munmap(region, region_bytes) == 0);
        load_complete(64 * MIB);
    }
    return 0;
}
