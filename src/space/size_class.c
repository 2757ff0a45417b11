#include "space/size_class.h"

const struct size_class size_classes[SIZE_CLASS_COUNT] = {
#define SIZE_CLASS(index, previous, bytes, pages)                                              \
    [index] = {(bytes), (uint32_t)(((UINT64_C(1) << 31) + (bytes) / 16 - 1) / ((bytes) / 16)), \
               (uint16_t)((pages)*PAGE_BYTES / (bytes)), (pages)},
#include "space/size_class.def"
#undef SIZE_CLASS
};

const uint8_t size_class_of_16[SMALL_BYTES_MAX / 16 + 1] = {
    [0] = 0,
#define SIZE_CLASS(index, previous, bytes, pages) [(previous) / 16 + 1 ...(bytes) / 16] = (index),
#include "space/size_class.def"
#undef SIZE_CLASS
};
