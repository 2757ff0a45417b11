/* Time, memory, faults and context switches of the timed part, and resident memory over time. */
#include "frame_inside.h"

#include "hakmem.h"
#include "proof.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { SERIES_POINTS_MAX = 512, EXTRAS_MAX = 16 };
enum { IDLE_STEP_MS = 10, BEAT_STEP_MS = 1 };

/* What getrusage says of this process and of its children that have ended. */
struct usage {
    struct rusage own, children;
};

static struct {
    uint64_t wall_ns;
    struct usage usage;
} started, stopped;

static struct {
    uint64_t peak_rss_bytes, end_rss_bytes;
    bool set; /* by the workload, for another process */
} memory;

/* hakmem's own account at the end of the timed part, which it gives to whoever asks. */
static struct {
    void (*read)(struct hakmem_totals *totals);
    struct hakmem_totals totals;
} account;

static struct {
    struct {
        uint64_t ms, rss_bytes;
    } points[SERIES_POINTS_MAX];
    size_t count;
    uint64_t gap_ms, next_ms;
    int file; /* /proc/self/statm; 0 until the first sample */
} series = {.gap_ms = 1};

static struct {
    const char *name;
    uint64_t value;
} extras[EXTRAS_MAX];
static size_t extra_count;

/* ---- time ---- */

uint64_t frame_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void usage_read(struct usage *usage) {
    getrusage(RUSAGE_SELF, &usage->own);
    getrusage(RUSAGE_CHILDREN, &usage->children);
}

void frame_start(void) {
    series.count = 0;
    series.next_ms = 0;
    usage_read(&started.usage);
    started.wall_ns = frame_now_ns();
}

void frame_stop(void) {
    stopped.wall_ns = frame_now_ns();
    usage_read(&stopped.usage);
    if (!memory.set) {
        memory.end_rss_bytes = frame_rss_exact();
    }
    if (account.read != NULL) {
        account.read(&account.totals);
    }
    proof_after();
}

void frame_account_find(void) {
    *(void **)(&account.read) = dlsym(RTLD_DEFAULT, "hakmem_totals");
}

/* ---- memory ---- */

/* The number of KiB after `key` in a file of /proc, in bytes; 0 when there is no such line. */
static uint64_t proc_bytes(const char *path, const char *key) {
    char text[4096];
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file >= 0 ? read(file, text, sizeof text - 1) : 0;
    text[got > 0 ? got : 0] = '\0';
    if (file >= 0) {
        close(file);
    }
    const char *at = strstr(text, key);
    return at != NULL ? strtoull(at + strlen(key), NULL, 10) * 1024 : 0;
}

/* The largest of all exact readings. */
static uint64_t rss_most_bytes;

uint64_t frame_rss_exact(void) {
    const uint64_t bytes = proc_bytes("/proc/self/smaps_rollup", "\nRss:");
    rss_most_bytes = bytes > rss_most_bytes ? bytes : rss_most_bytes;
    return bytes;
}

uint64_t frame_private_dirty(void) {
    return proc_bytes("/proc/self/smaps_rollup", "\nPrivate_Dirty:");
}

/* VmHWM belongs to this program's own address space; ru_maxrss would also carry the size of
 * whatever forked it. The kernel counts late, by up to 64 pages per CPU: a process that was seen to
 * be larger was larger. */
uint64_t frame_rss_peak(void) {
    const uint64_t bytes = proc_bytes("/proc/self/status", "\nVmHWM:");
    return bytes > rss_most_bytes ? bytes : rss_most_bytes;
}

/* Some dozens of pages off at most, and quick: for the series. */
static uint64_t rss_quick(void) {
    char text[64];
    if (series.file == 0) {
        series.file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    }
    ssize_t got = pread(series.file, text, sizeof text - 1, 0);
    text[got > 0 ? got : 0] = '\0';
    const char *resident = strchr(text, ' ');
    return resident != NULL ? strtoull(resident, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

void frame_memory_set(uint64_t peak_rss_bytes, uint64_t end_rss_bytes) {
    memory.peak_rss_bytes = peak_rss_bytes;
    memory.end_rss_bytes = end_rss_bytes;
    memory.set = true;
}

/* ---- memory over time ---- */

static void series_halve(void) {
    for (size_t i = 0; i < SERIES_POINTS_MAX / 2; i++) {
        series.points[i] = series.points[2 * i];
    }
    series.count = SERIES_POINTS_MAX / 2;
    series.gap_ms *= 2;
}

void frame_series_sample(void) {
    const uint64_t ms = (frame_now_ns() - started.wall_ns) / 1000000;
    if (ms < series.next_ms) {
        return;
    }
    if (series.count == SERIES_POINTS_MAX) {
        series_halve();
    }
    series.points[series.count].ms = ms;
    series.points[series.count].rss_bytes = rss_quick();
    series.count++;
    series.next_ms = ms + series.gap_ms;
}

static void series_add(struct text *text) {
    text_add(text, "\"rss_series\":[");
    for (size_t i = 0; i < series.count; i++) {
        text_add(text, "%s[%" PRIu64 ",%" PRIu64 "]", i == 0 ? "" : ",", series.points[i].ms,
                 series.points[i].rss_bytes);
    }
    text_add(text, "],");
}

void frame_idle(uint64_t duration_ms, void (*beat)(void *argument), void *argument) {
    const uint64_t end_ns = frame_now_ns() + duration_ms * 1000000;
    const long step_ms = beat != NULL ? BEAT_STEP_MS : IDLE_STEP_MS;
    while (frame_now_ns() < end_ns) {
        const struct timespec step = {0, step_ms * 1000000};
        nanosleep(&step, NULL);
        if (beat != NULL) {
            beat(argument);
        }
        frame_series_sample();
    }
}

/* ---- the figures of the row ---- */

void frame_extra(const char *name, uint64_t value) {
    if (extra_count == EXTRAS_MAX) {
        frame_fail("too many figures of its own");
    }
    extras[extra_count].name = name;
    extras[extra_count].value = value;
    extra_count++;
}

static uint64_t time_ns(struct timeval time) {
    return ((uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_usec) * 1000;
}

static uint64_t user_ns(const struct usage *usage) {
    return time_ns(usage->own.ru_utime) + time_ns(usage->children.ru_utime);
}

static uint64_t system_ns(const struct usage *usage) {
    return time_ns(usage->own.ru_stime) + time_ns(usage->children.ru_stime);
}

/* One counter of the timed part, children included. */
#define COUNTED(member)                                                                    \
    (stopped.usage.own.member + stopped.usage.children.member - started.usage.own.member - \
     started.usage.children.member)

void frame_figures_add(struct text *text) {
    const uint64_t user = user_ns(&stopped.usage) - user_ns(&started.usage);
    const uint64_t system = system_ns(&stopped.usage) - system_ns(&started.usage);
    text_add(text,
             "\"wall_ns\":%" PRIu64 ",\"user_ns\":%" PRIu64 ",\"system_ns\":%" PRIu64
             ",\"cpu_ns\":%" PRIu64 ",",
             stopped.wall_ns - started.wall_ns, user, system, user + system);
    text_add(text,
             "\"minor_faults\":%ld,\"major_faults\":%ld,\"voluntary_switches\":%ld,"
             "\"involuntary_switches\":%ld,",
             COUNTED(ru_minflt), COUNTED(ru_majflt), COUNTED(ru_nvcsw), COUNTED(ru_nivcsw));
    if (!memory.set) {
        memory.peak_rss_bytes = frame_rss_peak();
    }
    text_add(text, "\"peak_rss_bytes\":%" PRIu64 ",\"end_rss_bytes\":%" PRIu64 ",",
             memory.peak_rss_bytes, memory.end_rss_bytes);
    if (series.count > 0) {
        series_add(text);
    }
    /* Memory that was set is another process's, which has none of these books. */
    text_add(text, "\"extra\":{\"frame_bytes\":%" PRIu64,
             memory.set ? UINT64_C(0) : frame_mapped_bytes());
    if (account.read != NULL) {
        const struct hakmem_totals *totals = &account.totals;
        text_add(
            text, ",\"metadata_bytes\":%" PRIu64 ",\"heap_bytes\":%" PRIu64, totals->metadata_bytes,
            totals->live_bytes + totals->cached_bytes + totals->free_bytes + totals->dirty_bytes);
    }
    for (size_t i = 0; i < extra_count; i++) {
        text_add(text, ",\"%s\":%" PRIu64, extras[i].name, extras[i].value);
    }
    text_add(text, "},");
}
