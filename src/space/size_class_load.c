// The size classes of a profile in place of the library's own.
#include "space/size_class.h"

#include "os/os.h"

_Static_assert(SIZE_CLASS_COUNT == PROFILE_CLASSES_MAX, "a profile may fill the table");
_Static_assert(SMALL_BYTES_MAX == PROFILE_CLASS_BYTES_LAST, "a profile's classes end here as well");
_Static_assert(PAGE_BYTES == PROFILE_PAGE_BYTES, "a profile counts the same pages");

// Pages of a slab for blocks of any size: those of the built-in class that would serve them.
static uint32_t slab_pages_for(uint32_t block_bytes) {
    static const struct {
        uint32_t block_bytes, slab_pages;
    } built_in_pages[] = {
#define SIZE_CLASS(index, previous, bytes, pages) {(bytes), (pages)},
#include "space/size_class.def"
#undef SIZE_CLASS
    };
    unsigned index = 0;
    while (built_in_pages[index].block_bytes < block_bytes) {
        index++;
    }
    return built_in_pages[index].slab_pages;
}

static struct size_class row_of(struct profile_class class) {
    const uint32_t pages =
        class.slab_pages != 0 ? class.slab_pages : slab_pages_for(class.block_bytes);
    return (struct size_class){
        .block_bytes = class.block_bytes,
        .reciprocal = SIZE_CLASS_RECIPROCAL(class.block_bytes),
        .block_count = (uint16_t)(pages * PAGE_BYTES / class.block_bytes),
        .slab_pages = (uint16_t)pages,
    };
}

uint64_t size_class_block_bytes(uint64_t bytes) {
    return size_classes[size_class_index(bytes)].block_bytes;
}

void size_class_build(struct size_class_table *table, const struct profile *profile) {
    unsigned filled = 0;  // entries of number_of_16
    for (unsigned i = 0; i < SIZE_CLASS_COUNT; i++) {
        const unsigned index = i < profile->class_count ? i : profile->class_count - 1;
        table->rows[i] = row_of(profile->classes[index]);
        for (; filled <= table->rows[i].block_bytes / 16; filled++) {
            table->number_of_16[filled] = (uint8_t)(i + 1);
        }
    }
    table->count = (uint8_t)profile->class_count;
}

const char *size_class_load(const struct profile *profile) {
    struct size_class_table *table = &size_class_table;
    if (profile->class_count == 0) {
        return NULL;
    }
    if (os_page_bytes() > SIZE_CLASS_TABLE_ALIGN) {
        return "has size classes, which this machine's pages are too large for";
    }
    if (!os_protect(table, sizeof *table, true)) {
        return "has size classes, and the system does not let them be changed";
    }
    size_class_build(table, profile);
    os_protect(table, sizeof *table, false);
    return NULL;
}
