#include "thread/knobs.h"

#include "base/bits.h"
#include "config/options.h"
#include "config/profile.h"

struct knobs knobs;
struct knobs_hooks knobs_hooks;

static void set_prewarm(uint64_t class_index, uint64_t blocks) {
    knobs.prewarm[class_index] = (uint16_t)least_u64(blocks, PREWARM_BLOCKS_MAX);
}

void knobs_start(void) {
    if (options.prewarm != 0) {
        for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
            set_prewarm(i, options.prewarm);
        }
    }
    const struct profile *profile = profile_in_force;
    if (profile != NULL && options_origin(OPTION_prewarm) <= OPTION_ORIGIN_PROFILE) {
        for (uint32_t i = 0; i < profile->prewarm_count; i++) {
            const struct profile_prewarm *line = &profile->prewarm[i];
            set_prewarm(size_class_index(line->bytes), line->count);
        }
    }
}
