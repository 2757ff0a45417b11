#include <errno.h>
#include <string.h>

#include "api/exit_file.h"
#include "config/options.h"
#include "control/check.h"
#include "control/snapshot.h"
#include "control/stats.h"
#include "hakmem.h"
#include "thread/lifecycle.h"
#include "thread/maintenance.h"

EXPORTED const char *hakmem_version(void) {
    return HAKMEM_VERSION;
}

EXPORTED size_t hakmem_trim(void) {
    return maintenance_reclaim();
}

EXPORTED size_t hakmem_check(void) {
    return check_all();
}

static bool tells_at_exit(void) {
    return option_live(stats_at_exit) || option_live(leaks);
}

EXPORTED int hakmem_option_set(const char *name, const char *value) {
    // What the environment says comes first: it must not be loaded over this.
    lifecycle_start();
    // Whoever turned one of them on before has seen to the file: the start, an earlier call, or a reader outside.
    const bool told_before = tells_at_exit();
    if (!options_set(name, value)) {
        return -1;
    }
    if (!told_before && tells_at_exit()) {
        exit_file_keep();
    }
    return 0;
}

EXPORTED int hakmem_stats_json(int (*write)(void *context, const char *text, size_t bytes),
                               void *context) {
    return stats_write_json(write, context);
}

EXPORTED int hakmem_snapshot_fd(int fd) {
    // A handler may have interrupted the process's very first call.
    int error = EBUSY;
    if (likely(!lifecycle_is_starting())) {
        lifecycle_start();
        error = snapshot_write(fd);
    }
    if (error != 0) {
        errno = error;
        return -1;
    }
    return 0;
}

EXPORTED void hakmem_totals(struct hakmem_totals *totals) {
    struct stats stats;
    stats_collect(&stats);
    totals->live_bytes = stats.gauge[GAUGE_live_bytes];
    totals->live_blocks = stats.gauge[GAUGE_live_blocks];
    totals->cached_bytes = stats.gauge[GAUGE_cached_bytes];
    totals->free_bytes = stats.gauge[GAUGE_slab_free_bytes];
    totals->dirty_bytes = stats.gauge[GAUGE_dirty_bytes];
    totals->mapped_bytes = stats.gauge[GAUGE_mapped_bytes];
    totals->metadata_bytes = stats.gauge[GAUGE_metadata_bytes];
}
