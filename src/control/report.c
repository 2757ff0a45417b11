#include "control/report.h"

#include <string.h>

#include "base/atomic.h"
#include "base/text.h"
#include "config/options.h"
#include "config/profile.h"
#include "control/proof.h"
#include "control/stats.h"
#include "os/file.h"
#include "os/os.h"
#include "os/pause.h"

enum {
    HEADER_BYTES = 4096,
    BOOKS_BYTES = 12 * 1024,
    BOOKS_OFFSET = HEADER_BYTES,
    PROOF_OFFSET = BOOKS_OFFSET + BOOKS_BYTES,
    REPORT_BYTES = 1024 * 1024,
    // Storage for the proof is taken in steps of this many bytes.
    BACKED_STEP_BYTES = 64 * 1024,
    DIRECTORY_BYTES = 4096,
    NAME_BYTES = 48,  // two numbers
    PATH_BYTES = DIRECTORY_BYTES + NAME_BYTES,
};

// The fields that every report begins with.
enum own_field {
    FIELD_STATE,
    FIELD_REFRESHED_NS,
    FIELD_PROOF_LINES,
    FIELD_PROOF_LOST,
    FIELD_UNREPORTED_CHILDREN,
    FIELD_RSS_BYTES,
    FIELD_PEAK_RSS_BYTES,
    OWN_FIELD_COUNT,
};

#define OWN_FIELD_NAMES \
    "state refreshed_ns proof_lines proof_lost unreported_children rss_bytes peak_rss_bytes"

enum { STATE_STARTED = 1, STATE_EXITED = 2 };

enum { CLASS_FIELD_COUNT = 5 };

#define CLASS_FIELD_NAMES "block_bytes slab_bytes live_blocks cached_blocks free_blocks"

enum {
    CLASSES_INDEX = (int)OWN_FIELD_COUNT + (int)COUNTER_COUNT + (int)GAUGE_COUNT,
    INHERITED_INDEX = CLASSES_INDEX + SIZE_CLASS_COUNT * CLASS_FIELD_COUNT,
    BOOKS_COUNT = INHERITED_INDEX + COUNTER_COUNT,
};

_Static_assert(BOOKS_COUNT * sizeof(uint64_t) <= BOOKS_BYTES,
               "the books fit their part of the file");

static const char field_names[] = OWN_FIELD_NAMES
#define COUNTER(name, unit, help) " " #name
#define GAUGE(name, unit, help) " " #name
#include "config/counters.def"
    ;

// Text that is written straight into the mapped file. What does not fit is left out.
struct writer {
    char *at;
    char *end;
};

static struct report {
    // NULL: there is no report. Written while the process has one thread: at start-up, and in the
    // child of a fork. Relaxed elsewhere: whoever reads it started after that.
    _Atomic(char *) file;
    // The thread (os_thread_pointer()) that writes books or proof; 0: none does. Acquire pairs with the release that sets it to 0, so
    // that the next writer finds `scratch` and the proof's end as the last one left them.
    _Atomic(uintptr_t) busy;
    // 1 while a thread that ends the process waits for that: others, of which there may be hundreds, stay out. Relaxed: they look
    // now and then. Pairs with nothing.
    _Atomic(uint32_t) is_ending;
    uint64_t process_id;
    // The part of the header that a forked child has in common with its parent.
    size_t common_offset;
    size_t proof_end;
    size_t backed_end;
    struct pause pause;
    bool finished;
    // This is the child of a fork, or a child of such, beside which there were other threads.
    bool has_lost_threads;
    // Too long for the stack of a small thread. The directory, as it was found at the start, and behind it the latest file's name.
    char path[PATH_BYTES];
    size_t directory_bytes;
    struct stats scratch;
} report;

// ---- Text

static void write_bytes(struct writer *writer, const char *bytes, size_t count) {
    const size_t room = (size_t)(writer->end - writer->at);
    const size_t fits = count < room ? count : room;
    memcpy(writer->at, bytes, fits);
    writer->at += fits;
}

static void write_string(struct writer *writer, const char *string) {
    write_bytes(writer, string, strlen(string));
}

static void write_number(struct writer *writer, uint64_t value, unsigned base) {
    char digits[20];
    size_t first = sizeof digits;
    do {
        digits[--first] = "0123456789abcdef"[value % base];
        value /= base;
    } while (value != 0);
    write_bytes(writer, digits + first, sizeof digits - first);
}

// A path may contain anything; a line may not contain what ends a line or a column.
static void write_path(struct writer *writer, const char *path, size_t length) {
    for (size_t i = 0; i < length; i++) {
        write_bytes(writer, (unsigned char)path[i] < ' ' ? "?" : path + i, 1);
    }
}

static void write_text_line(struct writer *writer, const char *key, const char *value) {
    write_string(writer, key);
    write_string(writer, " ");
    write_string(writer, value);
    write_string(writer, "\n");
}

static void write_number_line(struct writer *writer, const char *key, uint64_t value) {
    write_string(writer, key);
    write_string(writer, " ");
    write_number(writer, value, 10);
    write_string(writer, "\n");
}

// ---- Books

static void put(char *file, size_t index, uint64_t value) {
    // Relaxed: a reader in another process sees each number whole, and draws no order from them.
    _Atomic(uint64_t) *books = (_Atomic(uint64_t) *)(void *)(file + BOOKS_OFFSET);
    atomic_store_relaxed(&books[index], value);
}

static void put_stats(char *file, const struct stats *stats) {
    size_t index = OWN_FIELD_COUNT;
    for (size_t i = 0; i < COUNTER_COUNT; i++) {
        put(file, index++, stats->counter[i]);
    }
    for (size_t i = 0; i < GAUGE_COUNT; i++) {
        put(file, index++, stats->gauge[i]);
    }
    for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        put(file, index++, stats->class[i].block_bytes);
        put(file, index++, stats->class[i].slab_bytes);
        put(file, index++, stats->class[i].live_blocks);
        put(file, index++, stats->class[i].cached_blocks);
        put(file, index++, stats->class[i].free_blocks);
    }
    put(file, FIELD_REFRESHED_NS, os_clock_ns());
}

// The number of bytes behind "key:" in /proc/self/status, 0 when it is not there.
static uint64_t status_bytes(const char *status, size_t length, const char *key) {
    const char *found = memmem(status, length, key, strlen(key));
    if (found == NULL) {
        return 0;
    }
    uint64_t kib = 0;
    for (const char *at = found + strlen(key); at < status + length && *at != '\n'; at++) {
        if (*at >= '0' && *at <= '9') {
            kib = kib * 10 + (uint64_t)(*at - '0');
        }
    }
    return kib * KIB;
}

// The holder of `busy` calls it.
static void put_memory(char *file) {
    static char
        status[8 *
               KIB];  // before what is looked for stand the user's groups, which may be hundreds
    const size_t length = os_file_read("/proc/self/status", status, sizeof status);
    put(file, FIELD_RSS_BYTES, status_bytes(status, length, "\nVmRSS:"));
    put(file, FIELD_PEAK_RSS_BYTES, status_bytes(status, length, "\nVmHWM:"));
}

// ---- Proof

struct proof_writer {
    const char *phase;
    uint64_t lines;
    uint64_t lost;
};

// Makes sure that `bytes` more can be written without a fault.
static bool back_proof(char *file, size_t bytes) {
    while (report.proof_end + bytes > report.backed_end) {
        const size_t step = REPORT_BYTES - report.backed_end < BACKED_STEP_BYTES
                                ? REPORT_BYTES - report.backed_end
                                : BACKED_STEP_BYTES;
        if (step == 0 || !os_file_back(file + report.backed_end, step)) {
            return false;
        }
        report.backed_end += step;
    }
    return true;
}

static void write_proof_line(void *context, const struct proof_line *line) {
    static const char *const routes[] = {
        [PROOF_CALL] = "call",
        [PROOF_POINTER] = "pointer",
        [PROOF_DATA] = "data",
        [PROOF_DEFINES] = "defines",
    };
    struct proof_writer *proof = context;
    char *file = atomic_load_relaxed(&report.file);
    const size_t module_length = strlen(line->module);
    const size_t provider_length = strlen(line->provider);
    const size_t length = strlen(proof->phase) + module_length + strlen(line->symbol) +
                          provider_length + strlen(routes[line->route]) + strlen("\t\t\t\t\n");
    // None: in the child of a handler that forked meanwhile, where no file could be made.
    if (file == NULL || !back_proof(file, length)) {
        proof->lost++;
        return;
    }
    struct writer writer = {file + report.proof_end, file + report.proof_end + length};
    write_string(&writer, proof->phase);
    write_string(&writer, "\t");
    write_path(&writer, line->module, module_length);
    write_string(&writer, "\t");
    write_string(&writer, line->symbol);
    write_string(&writer, "\t");
    write_path(&writer, line->provider, provider_length);
    write_string(&writer, "\t");
    write_string(&writer, routes[line->route]);
    write_string(&writer, "\n");
    report.proof_end += length;
    proof->lines++;
}

static void write_proof(char *file, const char *phase) {
    struct proof_writer proof = {.phase = phase};
    proof_walk(write_proof_line, &proof);
    put(file, FIELD_PROOF_LINES, proof.lines);
    put(file, FIELD_PROOF_LOST, proof.lost);
}

// ---- The file

static void write_common_header(struct writer *writer) {
    struct text mode = {0};
    options_get("mode", &mode);
    write_number_line(writer, "profile", profile_in_force != NULL);
    write_string(writer, "mode ");
    write_bytes(writer, mode.bytes, mode.count);
    const struct build_id id = proof_build_id();
    write_string(writer, "\nbuild_id ");
    for (size_t i = 0; i < id.count; i++) {
        write_number(writer, id.bytes[i] >> 4, 16);
        write_number(writer, id.bytes[i] & 15, 16);
    }
    write_string(writer, id.count == 0 ? "-\n" : "\n");
    write_text_line(writer, "fields", field_names);
    write_text_line(writer, "class_fields", CLASS_FIELD_NAMES);
    write_number_line(writer, "classes", SIZE_CLASS_COUNT);
    write_number_line(writer, "inherited", COUNTER_COUNT);
    char path[1024];
    // The name that the program was started by; the kernel's text ends in a newline.
    write_string(writer, "name ");
    const size_t name_bytes = os_file_read("/proc/self/comm", path, sizeof path);
    write_path(writer, path, name_bytes > 0 ? name_bytes - 1 : 0);
    write_string(writer, "\nlibrary ");
    write_path(writer, path, proof_library_path(path, sizeof path));
    write_string(writer, "\nexe ");
    write_path(writer, path, os_file_read_link("/proc/self/exe", path, sizeof path));
    write_string(writer, "\n");
}

// A program may be in another directory when it forks: one that is given from where it starts is kept with the whole path. As it was
// given where that is too long or unknown, or leads nowhere: past a directory that only those may pass who started the program.
static void find_directory(void) {
    const size_t given_bytes = strlen(options.report);
    struct writer writer = {report.path, report.path + sizeof report.path - 1};
    if (options.report[0] != '/' && given_bytes + NAME_BYTES < DIRECTORY_BYTES) {
        writer.at +=
            os_file_working_directory(report.path, DIRECTORY_BYTES - NAME_BYTES - given_bytes);
        if (writer.at != report.path) {
            write_string(&writer, "/");
        }
    }
    write_string(&writer, options.report);
    *writer.at = '\0';
    if (!os_file_exists(report.path)) {
        memcpy(report.path, options.report, given_bytes + 1);
        writer.at = report.path + given_bytes;
    }
    report.directory_bytes = (size_t)(writer.at - report.path);
}

static char *create_file(void) {
    const uint64_t now_ns = os_clock_ns();
    report.process_id = os_process_id();
    struct writer writer = {report.path + report.directory_bytes,
                            report.path + sizeof report.path - 1};
    write_string(&writer, "/");
    write_number(&writer, report.process_id, 10);
    write_string(&writer, ".");
    write_number(&writer, now_ns, 16);
    *writer.at = '\0';
    char *file = os_file_create_shared(report.path, REPORT_BYTES, PROOF_OFFSET, &report.backed_end);
    report.proof_end = PROOF_OFFSET;
    report.finished = false;
    return file;
}

// The header's first part, which tells this process from its relatives. Returns where it ends.
static struct writer write_own_header(char *file, bool forked) {
    struct writer writer = {file, file + HEADER_BYTES - 1};
    write_text_line(&writer, "hakmem-report", "1");
    write_number_line(&writer, "pid", report.process_id);
    write_number_line(&writer, "ppid", os_parent_id());
    write_number_line(&writer, "forked", forked);
    write_number_line(&writer, "start_ns", os_clock_ns());
    report.common_offset = (size_t)(writer.at - file);
    return writer;
}

static void warn(const char *lacks, const char *result) {
    struct text line = {0};
    text_string(&line, "hakmem: option HAKMEM_REPORT: no file ");
    text_string(&line, lacks);
    text_string(&line, "can be made in '");
    text_escaped(&line, options.report, strlen(options.report), 200);
    text_string(&line, result);
    text_flush(&line, 2);
}

// Tells the run that this program has no report although it is served: its files are limited, or the disk is full.
static bool leave_empty_file(void) {
    const int file = os_file_create(report.path);
    if (file >= 0) {
        os_file_close(file);
    }
    return file >= 0;
}

static void do_without_file(void) {
    if (leave_empty_file()) {
        warn("of 1 MiB ", "', the report is empty\n");
    } else if (os_file_exists(options.report)) {
        // Without the directory the run is over: what a daemon starts later has nobody to tell.
        warn("", "', no report is written\n");
    }
}

void report_start(void) {
    if (options.report[0] == '\0') {
        return;
    }
    find_directory();
    char *file = create_file();
    if (file == NULL) {
        do_without_file();
        return;
    }
    struct writer header = write_own_header(file, false);
    write_common_header(&header);
    atomic_store_relaxed(&report.file, file);
    write_proof(file, "start");
    put_memory(file);
    put(file, FIELD_STATE, STATE_STARTED);
    report_refresh();
}

static bool enter(void) {
    uintptr_t nobody = 0;
    return atomic_cas_acquire(&report.busy, &nobody, os_thread_pointer());
}

// An exit in a signal handler that interrupted this thread as it wrote.
static bool is_within(void) {
    return atomic_load_relaxed(&report.busy) == os_thread_pointer();
}

// The other writer looks at all heaps, which takes milliseconds where there are many, and its processor may be another's meanwhile: for
// seconds, where hundreds of threads share one.
// It may also sit in a thread that will never run again.
#define FINISH_WAIT_MS 5000
// Where the clock stands still: a filter refuses it, or another library has one of its own.
#define FINISH_YIELDS_MOST 1000000

static bool enter_at_last(void) {
    const uint64_t begin_ms = os_clock_ms();
    uint64_t seen_ms = begin_ms;
    uint32_t yields = 0;  // since the clock moved
    bool entered = enter();
    while (!entered && !is_within() && seen_ms - begin_ms < FINISH_WAIT_MS &&
           yields < FINISH_YIELDS_MOST) {
        os_yield();
        const uint64_t now_ms = os_clock_ms();
        yields = now_ms == seen_ms ? yields + 1 : 0;
        seen_ms = now_ms;
        entered = enter();
    }
    return entered;
}

static void leave(void) {
    atomic_store_release(&report.busy, 0);
}

// Whether somebody made the file shorter, as what rotates logs does, or has left no room for what is written to it: it is left alone then.
// Between this look and the writes it may still happen.
static bool is_lost(const char *file) {
    return unlikely(os_file_is_lost(file, report.proof_end));
}

// The file, when it belongs to this process: a child of vfork shares its parent's memory, and a
// bare clone() has run no fork handler.
static char *own_file(void) {
    char *file = atomic_load_relaxed(&report.file);
    return file != NULL && report.process_id == os_process_id() ? file : NULL;
}

// Where threads are many one or another ticks at any moment, and a look at all heaps takes all their locks. Whose processor
// was another's amid it took less than it seems.
#define PAUSE_TIMES 9
#define PAUSE_LEAST_TICKS (OS_TICKS_PACE / 2)
#define PAUSE_MOST_TICKS (32 * OS_TICKS_PACE)

static void refresh(char *file) {
    const uint64_t begin_ticks = os_ticks();
    if (!is_lost(file)) {
        stats_collect(&report.scratch);
        put_stats(file, &report.scratch);
    }
    pause_begin(&report.pause, begin_ticks, PAUSE_TIMES, PAUSE_LEAST_TICKS, PAUSE_MOST_TICKS);
}

SLOW_PATH static void refresh_in_turn(bool at_tick) {
    char *file = own_file();
    if (file == NULL || atomic_load_relaxed(&report.is_ending) != 0 || !enter()) {
        return;
    }
    // At a tick another may have done it meanwhile.
    if (!at_tick || pause_is_over(&report.pause)) {
        refresh(file);
    }
    leave();
}

static bool is_written(void) {
    return unlikely(atomic_load_relaxed(&report.file) != NULL);
}

void report_refresh(void) {
    if (is_written()) {
        refresh_in_turn(false);
    }
}

void report_tick(void) {
    if (is_written() && pause_is_over(&report.pause)) {
        refresh_in_turn(true);
    }
}

static void write_last(char *file) {
    if (!report.finished) {
        report.finished = true;
        if (!report.has_lost_threads) {
            write_proof(file, "exit");
        }
    }
    put_memory(file);
    stats_collect(&report.scratch);
    put_stats(file, &report.scratch);
    put(file, FIELD_STATE, STATE_EXITED);
}

void report_finish(void) {
    char *file = own_file();
    if (file == NULL) {
        return;
    }
    atomic_store_relaxed(&report.is_ending, 1);
    if (enter_at_last()) {
        if (!is_lost(file)) {
            write_last(file);
        }
        leave();
    }
    atomic_store_relaxed(&report.is_ending, 0);
}

// The same modules lie at the same places, so the parent's proof is this process's too. Asking the
// loader again could wait for a thread that the fork left behind.
static void copy_proof(char *file, const char *parents, size_t bytes_most) {
    const _Atomic(uint64_t) *books =
        (const _Atomic(uint64_t) *)(const void *)(parents + BOOKS_OFFSET);
    const size_t bytes = strnlen(parents + PROOF_OFFSET, bytes_most);
    const uint64_t lines = atomic_load_relaxed(&books[FIELD_PROOF_LINES]);
    const bool fits = back_proof(file, bytes);
    if (fits) {
        memcpy(file + PROOF_OFFSET, parents + PROOF_OFFSET, bytes);
        report.proof_end += bytes;
    }
    put(file, FIELD_PROOF_LINES, fits ? lines : 0);
    put(file, FIELD_PROOF_LOST, atomic_load_relaxed(&books[FIELD_PROOF_LOST]) + (fits ? 0 : lines));
}

// Counters go on from the parent's: what was counted before the fork is remembered, so that a
// reader can tell. Gauges need locks, and a signal handler may fork inside the allocator.
static void put_inherited(char *file) {
    stats_collect_counters(&report.scratch);
    for (size_t i = 0; i < COUNTER_COUNT; i++) {
        put(file, OWN_FIELD_COUNT + i, report.scratch.counter[i]);
        put(file, INHERITED_INDEX + i, report.scratch.counter[i]);
    }
}

// A file for the child like its parent's. NULL where none can be made.
static char *continue_in_child(const char *parents) {
    const char *common = parents + report.common_offset;
    const size_t common_bytes = strnlen(common, HEADER_BYTES - report.common_offset);
    const size_t proof_bytes = report.proof_end - PROOF_OFFSET;
    char *file = create_file();
    if (file != NULL) {
        struct writer header = write_own_header(file, true);
        write_bytes(&header, common, common_bytes);
        copy_proof(file, parents, proof_bytes);
        put_inherited(file);
        put(file, FIELD_STATE, STATE_STARTED);
    }
    return file;
}

// Told in the file of the parent, whose memory it is as well: the directory may lie outside of the child's root, or its files be limited.
static void count_unreported(char *parents) {
    // Relaxed: children count at the same time, and a reader draws no order from it. Pairs with nothing.
    _Atomic(uint64_t) *books = (_Atomic(uint64_t) *)(void *)(parents + BOOKS_OFFSET);
    atomic_add_relaxed(&books[FIELD_UNREPORTED_CHILDREN], 1);
}

void report_fork_child(bool had_threads) {
    char *parents = atomic_load_relaxed(&report.file);
    if (parents == NULL) {
        return;
    }
    atomic_store_relaxed(&report.busy, 0);
    atomic_store_relaxed(&report.is_ending, 0);
    pause_end(&report.pause);
    report.has_lost_threads |= had_threads;
    const bool is_whole = !is_lost(parents);
    char *file = is_whole ? continue_in_child(parents) : NULL;
    if (is_whole && file == NULL) {
        count_unreported(parents);
    }
    // In its place: a handler that forked may have interrupted who writes there, and the child returns to that.
    if (file != NULL && os_file_put_over(file, parents, REPORT_BYTES)) {
        file = parents;
    } else {
        os_file_put_over(NULL, parents, REPORT_BYTES);
    }
    atomic_store_relaxed(&report.file, file);
}
