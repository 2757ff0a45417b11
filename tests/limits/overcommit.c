// vm.overcommit_memory = 2: every writable mapping is charged. The allocator must start, must not
// be charged for what it only reserves, and refuses a request beyond the limit with ENOMEM.
//
// The setting belongs to the whole machine. It is changed for a moment only, with 4 GiB of room
// above what is committed now and swap, and a process of its own restores it whatever becomes of this one.
// Without the right to change it, the same load runs under RLIMIT_DATA, which counts the same
// mappings.
#include "load.h"

#include <signal.h>
#include <sys/resource.h>

#define ROOM_BYTES (4 * GIB)
#define GOAL_BYTES (256 * MIB)
// What is freed and not yet given back.
#define EXTRA_BYTES (512 * MIB)

static const char mode_path[] = "/proc/sys/vm/overcommit_memory";
static const char ratio_path[] = "/proc/sys/vm/overcommit_ratio";
static const char kbytes_path[] = "/proc/sys/vm/overcommit_kbytes";

static unsigned long read_number(const char *path) {
    char text[64] = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    require(fd >= 0 && read(fd, text, sizeof text - 1) > 0);
    close(fd);
    return strtoul(text, NULL, 10);
}

static bool write_number(const char *path, unsigned long value) {
    char text[32];
    int length = snprintf(text, sizeof text, "%lu\n", value);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool written = fd >= 0 && write(fd, text, (size_t)length) == length;
    if (fd >= 0) {
        close(fd);
    }
    return written;
}

// What this process is charged for: its accountable mappings. The machine's own sum (Committed_AS)
// moves with every other process.
static size_t charged_bytes(void) {
    FILE *file = fopen("/proc/self/smaps", "r");
    require(file != NULL);
    char line[512];
    size_t kib = 0, total = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "Size: %zu kB", &kib) != 1 && strncmp(line, "VmFlags:", 8) == 0 &&
            strstr(line, " ac") != NULL) {
            total += kib * KIB;
        }
    }
    fclose(file);
    require(total > 0);
    return total;
}

// More than the limit leaves, which swap adds to.
static size_t refused_bytes(void) {
    if (getenv("OVERCOMMIT_SIMULATED") != NULL) {
        return 2 * ROOM_BYTES;
    }
    size_t limit = proc_kb_line("/proc/meminfo", "\nCommitLimit:");
    return limit > 2 * ROOM_BYTES ? limit : 2 * ROOM_BYTES;
}

// What the loaded process does under the limit.
static void be_loaded(void) {
    size_t before = charged_bytes();
    load_complete(GOAL_BYTES);
    load_grow(GOAL_BYTES, MIB);
    require(load_refusals() == 0);
    size_t during = charged_bytes();
    size_t charged = during > before ? during - before : 0;
    behaviour_say("%zu MiB live, %zu MiB charged", load_live() / MIB, charged / MIB);
    if (getenv("OVERCOMMIT_SIMULATED") == NULL) {
        require_that(charged < GOAL_BYTES + EXTRA_BYTES, "%zu MiB are charged", charged / MIB);
    }
    size_t refused = refused_bytes();
    for (size_t bytes = refused; bytes <= 8 * refused; bytes *= 2) {
        errno = 0;
        require(malloc(opaque(bytes)) == NULL && errno == ENOMEM);
        errno = 0;
        require(calloc(1, opaque(bytes)) == NULL && errno == ENOMEM);
        errno = 0;
        require(memalign(1 << 21, opaque(bytes)) == NULL && errno == ENOMEM);
        void *block = malloc(3 * MIB);
        require(block != NULL);
        pattern_fill(block, 3 * MIB, 1);
        errno = 0;
        require(realloc(block, opaque(bytes)) == NULL && errno == ENOMEM);
        require(pattern_differs(block, 3 * MIB, 1) == 3 * MIB);
        free(block);
    }
    if (behaviour_on_hakmem()) {
        // What is cut off for an alignment is charged to nobody.
        size_t alignment = 4 * KIB;
        while (alignment < refused) {
            alignment *= 2;
        }
        void *block = memalign(alignment, 4 * KIB);
        require(block != NULL && aligned_to(block, alignment));
        free(block);
    }
    load_shrink(1);
    load_complete(GOAL_BYTES);
}

// Waits until `pipe_end` is closed by the death or the end of the test, then restores.
static void guard(int pipe_end, unsigned long mode, unsigned long ratio, unsigned long kbytes) {
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    char nothing;
    while (read(pipe_end, &nothing, 1) < 0 && errno == EINTR) {
    }
    bool restored = write_number(mode_path, mode);
    // Writing one of these clears the other.
    restored &= kbytes != 0 ? write_number(kbytes_path, kbytes) : write_number(ratio_path, ratio);
    _exit(restored ? 0 : 1);
}

static int run_loaded(char **values) {
    pid_t child = fork();
    require(child >= 0);
    if (child == 0) {
        // A fresh image, so that the allocator starts under the limit.
        setenv("OVERCOMMIT_STAGE", "1", 1);
        execv("/proc/self/exe", values);
        _exit(126);
    }
    int status = -1;
    require(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int count, char **values) {
    (void)count;
    behaviour_require_allocator();
    if (getenv("OVERCOMMIT_STAGE") != NULL) {
        be_loaded();
        return 0;
    }
    unsigned long mode = read_number(mode_path);
    unsigned long ratio = read_number(ratio_path);
    unsigned long kbytes = read_number(kbytes_path);
    if (!write_number(mode_path, mode)) {
        behaviour_say("%s is not writable: RLIMIT_DATA instead", mode_path);
        setenv("OVERCOMMIT_SIMULATED", "1", 1);
        struct rlimit limit = {ROOM_BYTES, ROOM_BYTES};
        require(setrlimit(RLIMIT_DATA, &limit) == 0);
        return run_loaded(values);
    }
    int ends[2];
    require(pipe(ends) == 0);
    pid_t guardian = fork();
    require(guardian >= 0);
    if (guardian == 0) {
        setsid();
        close(ends[1]);
        guard(ends[0], mode, ratio, kbytes);
    }
    close(ends[0]);
    require(fcntl(ends[1], F_SETFD, FD_CLOEXEC) == 0);
    size_t committed = proc_kb_line("/proc/meminfo", "\nCommitted_AS:");
    bool strict =
        write_number(kbytes_path, (committed + ROOM_BYTES) / KIB) && write_number(mode_path, 2);
    int status = strict ? run_loaded(values) : 125;
    close(ends[1]);
    int restored = -1;
    require(waitpid(guardian, &restored, 0) == guardian);
    require(WIFEXITED(restored) && WEXITSTATUS(restored) == 0);
    require(read_number(mode_path) == mode && read_number(ratio_path) == ratio);
    require_that(status == 0, "under overcommit_memory=2 the load ended with status %d", status);
    return 0;
}
