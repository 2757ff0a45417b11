#include "frame.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_USAGE = 2, EXIT_BROKEN_BLOCK = 3, EXIT_NO_MEMORY = 4 };

static struct {
    uint64_t wall_ns, cpu_ns;
    struct rusage usage;
} started, spent;

/* The floor allocator's own entry point; NULL under any other allocator. Looked up once, before the
 * workload begins: a look-up that fails allocates. */
static void (*floor_circle)(size_t bytes);

/* ---- failing ---- */

static _Noreturn void fail(int status, const char *format, ...) {
    char line[256];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (length > 0) {
        size_t bytes = (size_t)length < sizeof line ? (size_t)length : sizeof line - 1;
        ssize_t ignored = write(STDERR_FILENO, line, bytes);
        (void)ignored;
    }
    _exit(status);
}

void frame_fail(const char *what) {
    fail(EXIT_USAGE, "workload: %s\n", what);
}

void frame_fail_thread(int error) {
    fail(EXIT_NO_MEMORY, "workload: a thread could not be started: %s\n", strerror(error));
}

void frame_fail_contents(const struct frame_slot *slot) {
    fail(EXIT_BROKEN_BLOCK, "workload: the block at %p of %" PRIu32 " bytes lost its contents\n",
         (void *)slot->block, (uint32_t)slot->stamp);
}

void frame_fail_empty(size_t bytes) {
    fail(EXIT_NO_MEMORY, "workload: no block of %zu bytes\n", bytes);
}

/* ---- options ---- */

static uint64_t number_parse(const char *name, const char *text) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || text[0] == '-') {
        fail(EXIT_USAGE, "workload: %s: '%s' is not a number\n", name, text);
    }
    return value;
}

static void option_set(struct frame_options *options, const char *name, const char *text) {
    if (strcmp(name, "--order") == 0) {
        if (strcmp(text, "lifo") != 0 && strcmp(text, "fifo") != 0) {
            fail(EXIT_USAGE, "workload: --order is lifo or fifo, not '%s'\n", text);
        }
        options->order = text[0] == 'l' ? FRAME_LIFO : FRAME_FIFO;
        return;
    }
    uint64_t value = number_parse(name, text);
    if (strcmp(name, "--ops") == 0) {
        options->ops = value;
    } else if (strcmp(name, "--warm") == 0) {
        options->warm_ops = value;
    } else if (strcmp(name, "--seed") == 0) {
        options->seed = value;
    } else if (strcmp(name, "--slots") == 0) {
        options->slot_count = value;
    } else if (strcmp(name, "--min") == 0) {
        options->bytes_min = value;
    } else if (strcmp(name, "--max") == 0) {
        options->bytes_max = value;
    } else if (strcmp(name, "--rounds") == 0) {
        options->round_count = value;
    } else if (strcmp(name, "--threads") == 0) {
        options->thread_count = (unsigned)value;
    } else if (strcmp(name, "--check") == 0) {
        options->check = value != 0;
    } else {
        fail(EXIT_USAGE, "workload: %s: no such option\n", name);
    }
}

void frame_options_parse(struct frame_options *options, const char *workload, int argc,
                         char **argv) {
    if (argc % 2 == 0) {
        fail(EXIT_USAGE,
             "usage: %s [--ops N] [--warm N] [--seed N] [--slots N] [--min BYTES] [--max BYTES]\n"
             "       [--rounds N] [--threads N] [--order lifo|fifo] [--check 0|1]\n",
             workload);
    }
    for (int i = 1; i + 1 < argc; i += 2) {
        option_set(options, argv[i], argv[i + 1]);
    }
    /* POSIX's own way to turn dlsym's answer into a function pointer. */
    *(void **)(&floor_circle) = dlsym(RTLD_DEFAULT, "floor_circle");
    if (options->bytes_min < sizeof(uint64_t) || options->bytes_min > options->bytes_max ||
        options->bytes_max > INT32_MAX) {
        frame_fail("block sizes need 8 <= min <= max < 2 GiB");
    }
    if (options->slot_count == 0 || options->slot_count > UINT32_MAX || options->ops == 0 ||
        options->round_count == 0) {
        frame_fail("ops, slots and rounds cannot be zero");
    }
    if (options->thread_count == 0 || options->thread_count > 256) {
        frame_fail("the number of threads is 1 to 256");
    }
}

/* ---- memory that is not malloc's ---- */

void *frame_map(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) {
        frame_fail_empty(bytes);
    }
    return memory;
}

void frame_floor_circle(size_t bytes) {
    if (floor_circle != NULL) {
        floor_circle(bytes);
    }
}

/* ---- time ---- */

static uint64_t clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void frame_start(void) {
    getrusage(RUSAGE_SELF, &started.usage);
    started.cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    started.wall_ns = clock_ns(CLOCK_MONOTONIC);
}

void frame_stop(void) {
    spent.wall_ns = clock_ns(CLOCK_MONOTONIC) - started.wall_ns;
    spent.cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - started.cpu_ns;
    getrusage(RUSAGE_SELF, &spent.usage);
}

/* ---- threads ---- */

struct frame_worker {
    void (*body)(unsigned index, void *argument);
    void *argument;
    pthread_barrier_t *ready;
    pthread_t thread;
    unsigned index;
};

static void *worker_main(void *argument) {
    struct frame_worker *worker = argument;
    pthread_barrier_wait(worker->ready);
    worker->body(worker->index, worker->argument);
    return NULL;
}

void frame_threads_run(unsigned count, void (*body)(unsigned index, void *argument),
                       void *argument) {
    struct frame_worker *workers = frame_map(count * sizeof *workers);
    pthread_barrier_t ready;
    pthread_barrier_init(&ready, NULL, count + 1);
    for (unsigned i = 0; i < count; i++) {
        workers[i] = (struct frame_worker){body, argument, &ready, 0, i};
        const int error = pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]);
        if (error != 0) {
            frame_fail_thread(error);
        }
    }
    /* The clock starts before the barrier opens: a woken worker may run before this thread does. */
    frame_start();
    pthread_barrier_wait(&ready);
    for (unsigned i = 0; i < count; i++) {
        pthread_join(workers[i].thread, NULL);
    }
    frame_stop();
    pthread_barrier_destroy(&ready);
}

/* ---- the result line ---- */

/* Text of the result, built in place; one write at the end. */
static struct {
    char text[16384];
    size_t bytes;
} line;

static void print(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length =
        vsnprintf(line.text + line.bytes, sizeof line.text - line.bytes, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= sizeof line.text - line.bytes) {
        frame_fail("the result line is too long");
    }
    line.bytes += (size_t)length;
}

static void print_string(const char *text) {
    print("\"");
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\' || c < 0x20) {
            print("\\u%04x", c);
        } else {
            print("%c", c);
        }
    }
    print("\"");
}

/* The process's memory map, read once: the second witness beside the loader's own answer. */
static char *maps_read(void) {
    static char text[1 << 18];
    size_t bytes = 0;
    int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    while (file >= 0 && bytes < sizeof text - 1) {
        ssize_t got = read(file, text + bytes, sizeof text - 1 - bytes);
        if (got <= 0) {
            break;
        }
        bytes += (size_t)got;
    }
    if (file >= 0) {
        close(file);
    }
    text[bytes] = '\0';
    return text;
}

/* The file mapped at `address` according to the kernel; empty when none is. */
static void maps_find(const char *maps, uintptr_t address, char *file, size_t file_bytes) {
    file[0] = '\0';
    for (const char *row = maps; *row != '\0';) {
        uintptr_t from, to;
        int path_at = 0;
        const char *end = strchr(row, '\n');
        size_t row_bytes = end != NULL ? (size_t)(end - row) : strlen(row);
        if (sscanf(row, "%" SCNxPTR "-%" SCNxPTR " %*s %*s %*s %*s %n", &from, &to, &path_at) ==
                2 &&
            address >= from && address < to && path_at > 0 && (size_t)path_at < row_bytes) {
            size_t bytes = row_bytes - (size_t)path_at;
            bytes = bytes < file_bytes ? bytes : file_bytes - 1;
            memcpy(file, row + path_at, bytes);
            file[bytes] = '\0';
            return;
        }
        row += row_bytes + (end != NULL);
    }
}

/* Which file serves each name, by the loader (dladdr) and by the kernel's map of the address. The
 * addresses are those this program calls: they come from the same symbol look-up as its calls. */
static void print_proof(void) {
    const struct {
        const char *name;
        void *address;
    } served[] = {
        {"malloc", (void *)(uintptr_t)malloc},
        {"free", (void *)(uintptr_t)free},
        {"realloc", (void *)(uintptr_t)realloc},
        {"calloc", (void *)(uintptr_t)calloc},
    };
    const char *maps = maps_read();
    print("\"proof\":{");
    for (size_t i = 0; i < sizeof served / sizeof served[0]; i++) {
        Dl_info info = {0};
        char mapped[4096];
        const char *file = dladdr(served[i].address, &info) != 0 ? info.dli_fname : "";
        maps_find(maps, (uintptr_t)served[i].address, mapped, sizeof mapped);
        print("%s\"%s\":{\"loader\":", i == 0 ? "" : ",", served[i].name);
        print_string(file != NULL ? file : "");
        print(",\"map\":");
        print_string(mapped);
        print("}");
    }
    print("}");
}

/* A "kB" line of /proc/self/status in bytes. VmHWM belongs to this program's own address space;
 * ru_maxrss would also carry the size of whatever forked it. */
static uint64_t status_bytes(const char *status, const char *key) {
    const char *at = strstr(status, key);
    return at != NULL ? strtoull(at + strlen(key), NULL, 10) * 1024 : 0;
}

static void print_memory(void) {
    char status[4096];
    int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t got = file >= 0 ? read(file, status, sizeof status - 1) : 0;
    status[got > 0 ? got : 0] = '\0';
    if (file >= 0) {
        close(file);
    }
    print("\"peak_rss_bytes\":%" PRIu64 ",\"end_rss_bytes\":%" PRIu64 ",",
          status_bytes(status, "VmHWM:"), status_bytes(status, "VmRSS:"));
}

static uint64_t usage_ns(struct timeval now, struct timeval before) {
    return (uint64_t)((now.tv_sec - before.tv_sec) * 1000000 + (now.tv_usec - before.tv_usec)) *
           1000;
}

void frame_print(const struct frame_options *options, const char *workload, const char *unit,
                 uint64_t ops, uint64_t checksum) {
    const struct rusage *now = &spent.usage, *before = &started.usage;
    print("{\"program\":\"%s\",\"unit\":\"%s\",\"ops\":%" PRIu64 ",\"checksum\":\"%016" PRIx64
          "\",\"seed\":%" PRIu64 ",\"threads\":%u,\"checked\":%s,",
          workload, unit, ops, checksum, options->seed, options->thread_count,
          options->check ? "true" : "false");
    print("\"wall_ns\":%" PRIu64 ",\"cpu_ns\":%" PRIu64 ",\"user_ns\":%" PRIu64
          ",\"system_ns\":%" PRIu64 ",",
          spent.wall_ns, spent.cpu_ns, usage_ns(now->ru_utime, before->ru_utime),
          usage_ns(now->ru_stime, before->ru_stime));
    print("\"minor_faults\":%ld,\"major_faults\":%ld,\"switches_voluntary\":%ld,"
          "\"switches_involuntary\":%ld,",
          now->ru_minflt - before->ru_minflt, now->ru_majflt - before->ru_majflt,
          now->ru_nvcsw - before->ru_nvcsw, now->ru_nivcsw - before->ru_nivcsw);
    print_memory();
    print_proof();
    print("}\n");
    for (size_t at = 0; at < line.bytes;) {
        ssize_t put = write(STDOUT_FILENO, line.text + at, line.bytes - at);
        if (put < 0) {
            frame_fail("the result line could not be written");
        }
        at += (size_t)put;
    }
}
