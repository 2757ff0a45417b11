#include "space/size_class.h"

static const struct size_class_table built_in
    __attribute__((section(".rodata.hakmem_size_class_table"))) = {
        .number_of_16 =
            {
                [0] = 1,
#define SIZE_CLASS(index, previous, bytes, pages) \
    [(previous) / 16 + 1 ...(bytes) / 16] = (index) + 1,
#include "space/size_class.def"
#undef SIZE_CLASS
            },
        .count = SIZE_CLASS_COUNT,
        .rows =
            {
#define SIZE_CLASS(index, previous, bytes, pages)                                               \
    [index] = {(bytes), SIZE_CLASS_RECIPROCAL(bytes), (uint16_t)((pages)*PAGE_BYTES / (bytes)), \
               (pages)},
#include "space/size_class.def"
#undef SIZE_CLASS
            },
};
extern struct size_class_table size_class_table __attribute__((alias("built_in")));
