#include "control/snapshot.h"

#include <errno.h>
#include <signal.h>

#include "base/atomic.h"
#include "base/bits.h"
#include "base/text.h"
#include "base/write.h"
#include "config/options.h"
#include "hakmem_inspect.h"
#include "heap/guarded.h"
#include "heap/huge.h"
#include "os/fault.h"
#include "os/file.h"
#include "os/os.h"
#include "space/arena_pages.h"
#include "space/metadata.h"
#include "thread/lifecycle.h"

// Memory is looked through for zeros in steps of this many bytes, and texts are copied in such parts.
#define STEP_BYTES 4096
// Snapshots of one process that one directory may have.
#define FILES_MAX 10000

// Acquire on taking pairs with the release of the last writer: the buffer is free.
static _Atomic(bool) busy;
static char buffer[STEP_BYTES];
// The process a thread of which crashed: the first writes one, and the process ends then. A number, since the child of a vfork may
// crash in this process's memory. Acquire exchange: a thread that finds another's number pairs with nothing.
static _Atomic(uint32_t) crashing;
// The same number once its end is on its way. Release, acquire: what was installed before is there again.
static _Atomic(uint32_t) crash_is_over;

// What descriptor 2 led to at the start. Its number may be that of a file of the program's own by now.
static struct os_file_identity output;

struct writer {
    int descriptor;
    int error;
    uint64_t pieces;
};

static void write_bytes(struct writer *writer, const void *start, size_t bytes) {
    if (writer->error == 0) {
        writer->error = write_quietly(writer->descriptor, start, bytes);
    }
}

static void write_piece(struct writer *writer, enum hakmem_snapshot_kind kind, const char *name,
                        const void *address, uint64_t bytes) {
    struct hakmem_snapshot_piece piece = {.kind = kind, .address = address, .bytes = bytes};
    for (size_t i = 0; name[i] != '\0' && i < sizeof piece.name - 1; i++) {
        piece.name[i] = name[i];
    }
    write_bytes(writer, &piece, sizeof piece);
    writer->pieces++;
}

// ---- Memory

// Whether a whole step is zero. Other threads may be writing there: what is read is no more than a claim.
__attribute__((no_sanitize("thread"))) static bool is_zero(const char *start, size_t bytes) {
    const volatile uint64_t *words = (const volatile uint64_t *)(const void *)start;
    if (bytes != STEP_BYTES || (uintptr_t)start % sizeof *words != 0) {
        return false;  // what is short is not worth a piece of its own
    }
    for (size_t i = 0; i < STEP_BYTES / sizeof *words; i++) {
        if (words[i] != 0) {
            return false;
        }
    }
    return true;
}

// The next stretch, of whole steps but for its end, that is zero throughout or nowhere.
static size_t stretch(const char *start, size_t bytes, bool *zero) {
    size_t length = least_u64(bytes, STEP_BYTES);
    *zero = is_zero(start, length);
    while (length < bytes) {
        const size_t step = least_u64(bytes - length, STEP_BYTES);
        if (is_zero(start + length, step) != *zero) {
            break;
        }
        length += step;
    }
    return length;
}

static void write_memory(struct writer *writer, const char *name, const void *start, size_t bytes) {
    const char *rest = start;
    while (bytes > 0 && writer->error == 0) {
        bool zero;
        const size_t length = stretch(rest, bytes, &zero);
        write_piece(writer, zero ? HAKMEM_SNAPSHOT_ZEROS : HAKMEM_SNAPSHOT_MEMORY, name, rest,
                    length);
        if (!zero) {
            write_bytes(writer, rest, length);
        }
        rest += length;
        bytes -= length;
    }
}

static void write_table(struct writer *writer, const char *name,
                        const struct hakmem_inspect_table *table) {
    write_memory(writer, name, table->rows, (size_t)table->count * table->row_bytes);
}

static void write_root(struct writer *writer) {
    const struct hakmem_inspect_root *root = hakmem_inspect_root.self;
    write_memory(writer, "root", root, root->root_bytes);
    write_table(writer, "structures", &root->structures);
    write_table(writer, "fields", &root->fields);
    write_table(writer, "constants", &root->constants);
    write_table(writer, "globals", &root->globals);
    write_table(writer, "options", &root->options);
    write_table(writer, "choices", &root->choices);
    write_table(writer, "counters", &root->counters);
    write_table(writer, "size_classes", &root->size_classes);
    write_table(writer, "event_kinds", &root->event_kinds);
    if (root->elf_header != NULL) {
        write_memory(writer, "elf header", root->elf_header, STEP_BYTES);
    }
    const struct hakmem_inspect_global *globals = root->globals.rows;
    for (uint32_t i = 0; i < root->globals.count; i++) {
        write_memory(writer, globals[i].name, globals[i].address,
                     (size_t)globals[i].bytes * globals[i].count);
    }
}

static void write_strings(struct writer *writer) {
    for (unsigned i = 0; i < OPTION_COUNT; i++) {
        const char *text = options_string((enum option_id)i);
        if (text != NULL) {
            const size_t bytes = __builtin_strlen(text) + 1;
            write_piece(writer, HAKMEM_SNAPSHOT_MEMORY, "option", text, bytes);
            write_bytes(writer, text, bytes);
        }
    }
}

static void write_metadata(struct writer *writer) {
    for (const struct metadata_chunk *chunk = metadata_chunks(); chunk != NULL;
         chunk = chunk->next) {
        write_memory(writer, "metadata", chunk, chunk->bytes);
    }
}

static void write_lock(struct writer *writer, enum hakmem_snapshot_kind kind,
                       const struct lock *lock) {
    write_piece(writer, kind, "lock", lock, sizeof *lock);
    write_bytes(writer, lock, sizeof *lock);
}

static void write_locks(struct writer *writer, enum hakmem_snapshot_kind kind) {
    write_lock(writer, kind, &registry_state.lock);
    write_lock(writer, kind, &arena_state.lock);
    write_lock(writer, kind, &huge_table_state.lock);
    write_lock(writer, kind, &guarded_pool_state.lock);
    write_lock(writer, kind, &metadata_state.lock);
    write_lock(writer, kind, &late_heap_state.lock);
    for (const struct thread_cache *cache = lifecycle_caches(); cache != NULL;
         cache = cache->next_all) {
        write_lock(writer, kind, &cache->heap.lock);
    }
}

// ---- Texts

struct text_copy {
    struct writer *writer;
    const char *name;
};

static int write_part(const char *part, size_t bytes, void *context) {
    const struct text_copy *copy = context;
    write_piece(copy->writer, HAKMEM_SNAPSHOT_TEXT, copy->name, NULL, bytes);
    write_bytes(copy->writer, part, bytes);
    return copy->writer->error;
}

// A text that cannot be read is left out.
static void write_text(struct writer *writer, const char *name, const char *path) {
    struct text_copy copy = {writer, name};
    (void)os_file_each(path, buffer, sizeof buffer, write_part, &copy);
}

// ---- The whole

static void write_header(struct writer *writer) {
    const struct hakmem_snapshot_header header = {
        .magic = HAKMEM_SNAPSHOT_MAGIC,
        .byte_order = HAKMEM_INSPECT_BYTE_ORDER,
        .major = HAKMEM_SNAPSHOT_MAJOR,
        .minor = HAKMEM_SNAPSHOT_MINOR,
        .header_bytes = sizeof header,
        .piece_bytes = sizeof(struct hakmem_snapshot_piece),
        .root = hakmem_inspect_root.self,
        .process_id = os_process_id(),
        .taken_ns = os_clock_ns(),
    };
    write_bytes(writer, &header, sizeof header);
}

static int write_all(int descriptor) {
    struct writer writer = {.descriptor = descriptor};
    write_header(&writer);
    write_text(&writer, "comm", "/proc/self/comm");
    write_text(&writer, "cmdline", "/proc/self/cmdline");
    write_text(&writer, "auxv", "/proc/self/auxv");
    write_locks(&writer, HAKMEM_SNAPSHOT_LOCKED);
    write_root(&writer);
    write_strings(&writer);
    write_metadata(&writer);
    write_locks(&writer, HAKMEM_SNAPSHOT_LOCKED_AFTER);
    write_text(&writer, "maps", "/proc/self/maps");
    write_text(&writer, "smaps", "/proc/self/smaps");
    write_text(&writer, "smaps_rollup", "/proc/self/smaps_rollup");
    write_text(&writer, "status", "/proc/self/status");
    write_piece(&writer, HAKMEM_SNAPSHOT_END, "end", (const void *)writer.pieces, 0);
    return writer.error;
}

// False while another one is written.
static bool begin(void) {
    return !atomic_exchange_acquire(&busy, true);
}

static void end(void) {
    atomic_store_release(&busy, false);
}

int snapshot_write(int descriptor) {
    if (!begin()) {
        return EBUSY;
    }
    const int error = write_all(descriptor);
    end();
    return error;
}

void snapshot_fork_child(void) {
    end();
}

// ---- On a signal

static void text_path(struct text *path, unsigned number) {
    text_clear(path);
    const char *directory = options.snapshot_directory;
    text_string(path, directory[0] == '\0' ? "." : directory);
    text_string(path, "/hakmem.");
    text_unsigned(path, os_process_id());
    text_string(path, ".");
    text_unsigned(path, number);
    text_string(path, ".snapshot");
    text_char(path, '\0');
}

static void say(const char *path, int error) {
    if (!os_file_leads_to(2, &output)) {
        return;
    }
    struct text line;
    text_clear(&line);
    text_string(&line, "hakmem: snapshot: ");
    text_string(&line, path);
    if (error != 0) {
        text_string(&line, " is incomplete (error ");
        text_unsigned(&line, (unsigned)error);
        text_string(&line, ")");
    }
    text_string(&line, "\n");
    text_flush(&line, 2);
}

// The descriptor of a new file, or an error number with a minus; `path` is then the last one tried.
static int create_file(struct text *path, unsigned files_max) {
    int file = -EEXIST;
    for (unsigned number = 1; file == -EEXIST && number <= files_max; number++) {
        text_path(path, number);
        file = path->cut ? -ENAMETOOLONG : os_file_create(path->bytes);
    }
    return file;
}

// `is_spare`: not where the process has written one already.
static void write_file(bool is_spare) {
    struct text path;
    if (!begin()) {
        // No file, which would stay empty.
        say("none, another one is being written", 0);
        return;
    }
    const int file = create_file(&path, is_spare ? 1 : FILES_MAX);
    int error = -file;
    if (file >= 0) {
        error = write_all(file);
        os_file_close(file);
    }
    end();
    path.bytes[sizeof path.bytes - 1] = '\0';
    if (!is_spare || error != EEXIST) {
        say(path.bytes, error);
    }
}

// Whether nobody ever allocated from this copy of the library. Of one that is preloaded beside a program that has the archive in itself
// the handler was there first, so it comes behind the program's, whose snapshot tells of the heap that serves.
static bool is_idle(void) {
    return lifecycle_caches() == NULL;
}

// What was installed before, the handler of faults of sampled blocks for one. Written before the handler is.
static struct sigaction earlier;

// Whether the thread itself did something that it cannot go on after, and nobody sent the signal.
static bool is_crash(int signal, const siginfo_t *info) {
    return info->si_code > 0 && (signal == SIGSEGV || signal == SIGBUS || signal == SIGILL ||
                                 signal == SIGFPE || signal == SIGTRAP || signal == SIGSYS);
}

// Whether an instruction that is run again raises the signal again. Not behind a breakpoint or a system call that a filter refuses, nor
// where memory that somebody will need was found damaged.
static bool comes_again(int signal, const siginfo_t *info) {
    return signal != SIGTRAP && signal != SIGSYS &&
           !(signal == SIGBUS && info->si_code == BUS_MCEERR_AO);
}

static void put_back_earlier(int signal, uint32_t self) {
    // The kernel lets nobody ignore a signal that it raised; one that is sent instead could be.
    if ((earlier.sa_flags & SA_SIGINFO) == 0 && earlier.sa_handler == SIG_IGN) {
        earlier.sa_handler = SIG_DFL;
    }
    sigaction(signal, &earlier, NULL);
    atomic_store_release(&crash_is_over, self);
}

// One snapshot, and the process ends as it would without: what was installed before is there again when the instruction
// runs again. Threads that crash meanwhile wait until the first one has its snapshot.
static void on_crash(int signal, const siginfo_t *info) {
    const uint32_t self = (uint32_t)os_process_id();
    if (atomic_exchange_acquire(&crashing, self) != self) {
        write_file(is_idle());
        put_back_earlier(signal, self);
    }
    // Not where the child of a vfork, which crashes as well, has put its own number over this one.
    while (atomic_load_acquire(&crash_is_over) != self && atomic_load_relaxed(&crashing) == self) {
        os_yield();
    }
    if (!comes_again(signal, info)) {
        // Sent instead, to be delivered when this handler returns. What was installed before may be another copy's, which ends the process
        // by a crash alone.
        os_signal_again(signal, info);
    }
}

static void on_signal(int signal, siginfo_t *info, void *context) {
    (void)context;
    if (is_crash(signal, info)) {
        on_crash(signal, info);
    } else {
        write_file(false);
    }
}

// SIGKILL, SIGSTOP, and what the C library has for itself.
static void warn_refused(void) {
    struct text line;
    text_clear(&line);
    text_string(&line, "hakmem: option snapshot_signal: value '");
    text_unsigned(&line, options.snapshot_signal);
    text_string(&line, "' is no signal that can be caught, kept 0\n");
    text_flush(&line, 2);
    option_store_number(OPTION_snapshot_signal, 0, OPTION_ORIGIN_DEFAULT);
}

void snapshot_start(void) {
    const int signal = (int)options.snapshot_signal;
    (void)os_file_identify(2, &output);
    struct sigaction action = {.sa_sigaction = on_signal,
                               .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    sigfillset(&action.sa_mask);
    if (signal != 0 &&
        (sigaction(signal, NULL, &earlier) != 0 || sigaction(signal, &action, NULL) != 0)) {
        warn_refused();
    }
}
