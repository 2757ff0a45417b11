/* witness: preloaded next to an allocator into real programs, it states for each process which
 * allocator served it and what memory it took. One JSON line per process that ends in order is
 * appended to the file named by WITNESS_FILE; without that variable it is silent. (An allocator may
 * warn of variables that begin with its own name.)
 *
 *   {"pid": N, "parent": N, "exe": FILE, "peak_rss_bytes": N, "end_rss_bytes": N,
 *    "idle_rss_bytes": N or absent, "user_ns": N, "system_ns": N, "minor_faults": N,
 *    "major_faults": N, "voluntary_switches": N, "involuntary_switches": N,
 *    "strays": [...], "importers": N, "proof": {...},
 *    "own_spans_ns": [[FROM, TO], ...], "own_cpu_ns": N, "own_minor_faults": N,
 *    "own_major_faults": N, "own_voluntary_switches": N, "own_involuntary_switches": N}
 *
 * The figures are those of this process alone, without its children. They are read when the process
 * begins to exit: in the destructors, after the program's own, or in _exit. With
 * WITNESS_IDLE_MS the main program, and any other process of 8 MiB or more, then stays for that long
 * without a call of malloc and looks once more: what has an allocator given back by itself?
 *
 * It allocates nothing and has no thread-local data, and what it reads it reads after the figures.
 * What it does itself takes from some 0.1 ms to some ms, which depends on the allocator: the "own"
 * fields tell when it was at work in this process (CLOCK_MONOTONIC: when the process began, unless
 * it was made by fork, and at its end), and what that cost. The last write is not in it.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "bindings.h"
#include "proof.h"
#include "text.h"

enum { STATEMENT_BYTES = 32768, IDLE_MS_MAX = 60000, IDLE_RSS_BYTES_MIN = 8 << 20 };

static char statements_file[1024];
static uint64_t idle_ms;
/* The process that this image was started as, and the last one that has spoken. A child made by
 * fork has a copy of both; one made by vfork shares them. */
static pid_t started_pid, stated_pid;

static size_t file_read(const char *path, char *buffer, size_t size) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    size_t used = 0;
    for (ssize_t got = 1; file >= 0 && got > 0 && used + 1 < size; used += (size_t)got) {
        got = read(file, buffer + used, size - 1 - used);
        got = got < 0 ? 0 : got;
    }
    buffer[used] = '\0';
    if (file >= 0) {
        close(file);
    }
    return used;
}

/* A line "KEY   N kB" in bytes; 0 when there is none. */
static uint64_t kilobytes(const char *text, const char *key) {
    const char *at = strstr(text, key);
    return at == NULL ? 0 : strtoull(at + strlen(key), NULL, 10) * 1024;
}

/* Counted page by page: the count in /proc/self/status is late by up to 64 pages per CPU. */
static uint64_t rss_bytes(void) {
    char rollup[2048];
    file_read("/proc/self/smaps_rollup", rollup, sizeof rollup);
    return kilobytes(rollup, "\nRss:");
}

static uint64_t peak_rss_bytes(void) {
    char status[4096];
    file_read("/proc/self/status", status, sizeof status);
    return kilobytes(status, "\nVmHWM:");
}

static uint64_t nanoseconds(struct timeval time) {
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_usec * 1000u;
}

static void sleep_ms(uint64_t ms) {
    struct timespec left = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

/* The launcher leads a session of its own, and the main program is its child. */
static bool is_main(void) {
    return getppid() == getsid(0);
}

/* What the witness itself costs the process `pid`, and from when to when it was at work. A child made
 * by fork begins with a copy of its parent's, which is not its own. */
static struct {
    pid_t pid;
    size_t span_count;
    uint64_t spans_ns[2][2];
    uint64_t cpu_ns;
    long minor_faults, major_faults, voluntary_switches, involuntary_switches;
    uint64_t cpu_ns_before;
    struct rusage before;
} own;

static uint64_t now_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void own_begin(void) {
    if (own.pid != getpid()) {
        memset(&own, 0, sizeof own);
        own.pid = getpid();
    }
    own.spans_ns[own.span_count][0] = now_ns(CLOCK_MONOTONIC);
    own.cpu_ns_before = now_ns(CLOCK_THREAD_CPUTIME_ID);
    getrusage(RUSAGE_THREAD, &own.before);
}

/* The thread's own clock is exact; the times of getrusage come in steps of the kernel's tick. */
static void own_end(void) {
    struct rusage now;
    getrusage(RUSAGE_THREAD, &now);
    own.cpu_ns += now_ns(CLOCK_THREAD_CPUTIME_ID) - own.cpu_ns_before;
    own.minor_faults += now.ru_minflt - own.before.ru_minflt;
    own.major_faults += now.ru_majflt - own.before.ru_majflt;
    own.voluntary_switches += now.ru_nvcsw - own.before.ru_nvcsw;
    own.involuntary_switches += now.ru_nivcsw - own.before.ru_nivcsw;
    own.spans_ns[own.span_count++][1] = now_ns(CLOCK_MONOTONIC);
}

static void own_add(struct text *text) {
    text_add(text, "\"own_spans_ns\":[");
    for (size_t i = 0; i < own.span_count; i++) {
        text_add(text, "%s[%" PRIu64 ",%" PRIu64 "]", i == 0 ? "" : ",", own.spans_ns[i][0],
                 own.spans_ns[i][1]);
    }
    text_add(text,
             "],\"own_cpu_ns\":%" PRIu64 ",\"own_minor_faults\":%ld,\"own_major_faults\":%ld"
             ",\"own_voluntary_switches\":%ld,\"own_involuntary_switches\":%ld",
             own.cpu_ns, own.minor_faults, own.major_faults, own.voluntary_switches,
             own.involuntary_switches);
}

static void append(const struct text *text) {
    const int file = open(statements_file, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (file >= 0) {
        /* One write: lines of processes that end at the same time do not mix. */
        const ssize_t ignored = write(file, text->start, text->used);
        (void)ignored;
        close(file);
    }
}

static void state(void) {
    static char buffer[STATEMENT_BYTES];
    char exe[1024];
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    own_begin();
    const uint64_t end = rss_bytes();
    const uint64_t peak = peak_rss_bytes();
    const ssize_t exe_bytes = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[exe_bytes > 0 ? exe_bytes : 0] = '\0';
    struct text text = text_in(buffer, sizeof buffer);
    text_add(&text, "{\"pid\":%d,\"parent\":%d,\"exe\":", (int)getpid(), (int)getppid());
    text_add_string(&text, exe);
    text_add(&text, ",\"peak_rss_bytes\":%" PRIu64 ",\"end_rss_bytes\":%" PRIu64 ",",
             peak > end ? peak : end, end);
    if (idle_ms != 0 && getpid() == started_pid && (is_main() || end >= IDLE_RSS_BYTES_MIN)) {
        sleep_ms(idle_ms);
        text_add(&text, "\"idle_rss_bytes\":%" PRIu64 ",", rss_bytes());
    }
    text_add(&text,
             "\"user_ns\":%" PRIu64 ",\"system_ns\":%" PRIu64
             ",\"minor_faults\":%ld,\"major_faults\":%ld,\"voluntary_switches\":%ld"
             ",\"involuntary_switches\":%ld,",
             nanoseconds(usage.ru_utime), nanoseconds(usage.ru_stime), usage.ru_minflt,
             usage.ru_majflt, usage.ru_nvcsw, usage.ru_nivcsw);
    bindings_add(&text);
    text_add(&text, ",\"proof\":");
    proof_add(&text);
    text_add(&text, ",");
    own_end();
    own_add(&text);
    text_add(&text, "}\n");
    if (!text.cut) {
        append(&text);
    }
}

static void state_once(void) {
    if (statements_file[0] != '\0' && stated_pid != getpid()) {
        stated_pid = getpid();
        state();
    }
}

__attribute__((constructor)) static void witness_start(void) {
    const char *file = getenv("WITNESS_FILE");
    const char *idle = getenv("WITNESS_IDLE_MS");
    if (file == NULL || strlen(file) >= sizeof statements_file) {
        return;
    }
    strcpy(statements_file, file);
    idle_ms = idle == NULL ? 0 : strtoull(idle, NULL, 10);
    idle_ms = idle_ms > IDLE_MS_MAX ? IDLE_MS_MAX : idle_ms;
    started_pid = getpid();
    proof_call_once(); /* what the allocator does at its first call is not the witness's work */
    own_begin();
    proof_before();
    own_end();
}

__attribute__((destructor)) static void witness_end(void) {
    state_once();
}

/* A program may leave without running destructors. A child between fork or vfork and exec is not a
 * program of its own, and says nothing here. */
__attribute__((noreturn, visibility("default"))) void _exit(int status) {
    if (getpid() == started_pid) {
        state_once();
    }
    for (;;) {
        syscall(SYS_exit_group, status);
    }
}

__attribute__((noreturn, visibility("default"), alias("_exit"))) void _Exit(int status);
