/* startup: short processes, one after the other. Each is this program again, started by posix_spawn:
 * it takes some blocks, compares and frees them, and ends by returning from main. The time is that
 * of exec, of the loader binding the allocator, of its set-up and its exit handlers; peak and end of
 * the row are those of one such process, as it states itself. */
#include "frame.h"

#include <dlfcn.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS_MAX = 1024, NAME_BYTES = 1024 };

extern char **environ;

static const struct frame_workload startup = {
    .name = "startup",
    .unit = "processes started and ended",
};

/* What a process leaves in the file that it inherits. */
struct statement {
    uint64_t checksum;
    uint64_t peak_rss_bytes, end_rss_bytes; /* of the one that is asked to measure itself */
    char malloc_file[NAME_BYTES];
};

static void blocks_take(const struct frame_options *options, struct frame_slot *slots,
                        uint64_t seed) {
    struct frame_random random = {seed};
    for (size_t i = 0; i < options->slot_count; i++) {
        const uint64_t bits = frame_random_next(&random);
        frame_take(&slots[i], frame_bytes_pick(options, bits), frame_random_mix(bits));
    }
}

static void malloc_file_find(char *name) {
    Dl_info info;
    if (dladdr((void *)(uintptr_t)malloc, &info) == 0 || info.dli_fname == NULL) {
        frame_fail("startup: malloc lies in no file");
    }
    strncpy(name, info.dli_fname, NAME_BYTES - 1);
}

static uint64_t number_at(char *const *words, size_t index) {
    return strtoull(words[index], NULL, 10);
}

/* In the child: argv is {name, "child", file, seed, blocks, min, max, check, measured}. */
static int child_main(char **argv) {
    static struct frame_slot slots[BLOCKS_MAX];
    static struct statement statement;
    const struct frame_options options = {
        .slot_count = number_at(argv, 4),
        .bytes_min = number_at(argv, 5),
        .bytes_max = number_at(argv, 6),
        .check = number_at(argv, 7) != 0,
    };
    const int file = (int)number_at(argv, 2);
    size_t bytes = sizeof statement.checksum;
    blocks_take(&options, slots, number_at(argv, 3));
    if (number_at(argv, 8) != 0) {
        bytes = sizeof statement;
        statement.end_rss_bytes = frame_rss_exact();
        statement.peak_rss_bytes = frame_rss_peak();
        malloc_file_find(statement.malloc_file);
    }
    statement.checksum = frame_drop_all(slots, options.slot_count, options.check);
    return pwrite(file, &statement, bytes, 0) == (ssize_t)bytes ? 0 : 1;
}

struct parent {
    const struct frame_options *options;
    struct frame_random random;
    int file;
};

static void word_write(char *word, uint64_t number) {
    struct text text = text_in(word, 24);
    text_add(&text, "%llu", (unsigned long long)number);
}

/* Starts one process and waits for it. */
static uint64_t process_run(struct parent *parent, bool measured) {
    const struct frame_options *options = parent->options;
    const uint64_t numbers[] = {
        (uint64_t)parent->file,
        frame_random_next(&parent->random),
        options->slot_count,
        options->bytes_min,
        options->bytes_max,
        options->check,
        measured,
    };
    enum { NUMBERS = sizeof numbers / sizeof numbers[0] };
    char words[NUMBERS][24];
    char *line[NUMBERS + 3] = {"startup", "child"};
    for (size_t i = 0; i < NUMBERS; i++) {
        word_write(words[i], numbers[i]);
        line[2 + i] = words[i];
    }
    pid_t child;
    int status = 0;
    if (posix_spawn(&child, "/proc/self/exe", NULL, NULL, line, environ) != 0) {
        frame_fail("startup: no process could be started");
    }
    if (waitpid(child, &status, 0) != child || status != 0) {
        frame_fail_child(status);
    }
    uint64_t checksum = 0;
    if (pread(parent->file, &checksum, sizeof checksum, 0) != sizeof checksum) {
        frame_fail("startup: a process left no statement");
    }
    return checksum;
}

/* One more process, which measures itself and says which file serves it. */
static void statement_take(struct parent *parent) {
    static struct statement statement;
    static char own[NAME_BYTES];
    process_run(parent, true);
    if (pread(parent->file, &statement, sizeof statement, 0) != sizeof statement) {
        frame_fail("startup: a process left no statement");
    }
    malloc_file_find(own);
    if (strcmp(own, statement.malloc_file) != 0) {
        frame_fail("startup: the started processes are served by another file");
    }
    frame_memory_set(statement.peak_rss_bytes, statement.end_rss_bytes);
}

int main(int argc, char **argv) {
    if (argc == 9 && strcmp(argv[1], "child") == 0) {
        return child_main(argv);
    }
    struct frame_options options = {
        .workload = &startup,
        .seed = 43,
        .ops = 250,
        .warm_ops = 10,
        .slot_count = 100,
        .bytes_min = 16,
        .bytes_max = 1024,
    };
    frame_options_parse(&options, argc, argv);
    if (options.slot_count > BLOCKS_MAX || options.sizes != FRAME_UNIFORM) {
        frame_fail("startup: at most 1024 slots, uniform sizes");
    }
    /* This process holds the same blocks meanwhile: its proof speaks of an allocator at work. */
    struct frame_slot *slots = frame_map(options.slot_count * sizeof *slots);
    blocks_take(&options, slots, options.seed);
    struct parent parent = {&options, frame_random_make(options.seed, 0), -1};
    parent.file = memfd_create("statement", 0);
    uint64_t checksum = 0;
    for (uint64_t i = 0; i < options.warm_ops; i++) {
        checksum += process_run(&parent, false);
    }
    frame_start();
    for (uint64_t i = 0; i < options.ops; i++) {
        checksum += process_run(&parent, false);
    }
    frame_stop();
    statement_take(&parent);
    checksum += frame_drop_all(slots, options.slot_count, options.check);
    frame_report(&options, options.ops, checksum);
    return 0;
}
