// Snapshots, read back as a reader of the file would.
#include "isolate.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/alloc.h"
#include "config/options.h"
#include "control/snapshot.h"
#include "filter.h"
#include "hakmem.h"
#include "hakmem_inspect.h"
#include "os/file.h"
#include "space/arena_pages.h"
#include "thread/lifecycle.h"

struct parsed {
    uint64_t pieces, memory_bytes, zero_bytes, text_bytes, locks, locks_after, held;
    uint64_t process_id;
    bool root, maps, ended;
    // Memory that is not what is there now.
    uint64_t different;
};

// No other thread runs: what was written can be compared with what is there.
static bool is_quiet = true;

static void add_piece(struct parsed *parsed, const struct hakmem_snapshot_piece *piece,
                      const char *data) {
    switch (piece->kind) {
    case HAKMEM_SNAPSHOT_MEMORY:
        parsed->memory_bytes += piece->bytes;
        if (is_quiet) {
            parsed->different += memcmp(data, piece->address, piece->bytes) != 0;
        }
        if (piece->address == &hakmem_inspect_root) {
            parsed->root = memcmp(data, HAKMEM_INSPECT_MAGIC, 14) == 0;
        }
        break;
    case HAKMEM_SNAPSHOT_ZEROS:
        parsed->zero_bytes += piece->bytes;
        break;
    case HAKMEM_SNAPSHOT_TEXT:
        parsed->text_bytes += piece->bytes;
        parsed->maps = parsed->maps || strcmp(piece->name, "maps") == 0;
        break;
    case HAKMEM_SNAPSHOT_LOCKED:
        parsed->locks++;
        parsed->held += ((const struct lock *)(const void *)data)->state != 0;
        break;
    case HAKMEM_SNAPSHOT_LOCKED_AFTER:
        parsed->locks_after++;
        break;
    default:
        assert_int_equal(piece->kind, HAKMEM_SNAPSHOT_END);
        assert_int_equal((uintptr_t)piece->address, parsed->pieces);
        parsed->ended = true;
    }
}

static bool has_data(uint32_t kind) {
    return kind != HAKMEM_SNAPSHOT_ZEROS && kind != HAKMEM_SNAPSHOT_END;
}

static struct parsed parse(const char *file, size_t bytes) {
    struct parsed parsed = {0};
    struct hakmem_snapshot_header header;
    assert_true(bytes >= sizeof header);
    memcpy(&header, file, sizeof header);
    assert_string_equal(header.magic, HAKMEM_SNAPSHOT_MAGIC);
    assert_int_equal(header.byte_order, HAKMEM_INSPECT_BYTE_ORDER);
    assert_ptr_equal(header.root, &hakmem_inspect_root);
    parsed.process_id = header.process_id;
    size_t at = header.header_bytes;
    while (at < bytes && !parsed.ended) {
        struct hakmem_snapshot_piece piece;
        assert_true(bytes - at >= sizeof piece);
        memcpy(&piece, file + at, sizeof piece);
        at += header.piece_bytes;
        const size_t length = has_data(piece.kind) ? piece.bytes : 0;
        assert_true(bytes - at >= length);
        // At an address of its own: the data of one piece begins anywhere in the file.
        char *data = malloc(length + 1);
        memcpy(data, file + at, length);
        add_piece(&parsed, &piece, data);
        free(data);
        at += length;
        parsed.pieces++;
    }
    assert_int_equal(at, bytes);
    return parsed;
}

static struct parsed parse_file(int descriptor) {
    struct stat status;
    assert_int_equal(fstat(descriptor, &status), 0);
    const size_t bytes = (size_t)status.st_size;
    char *file = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
    assert_ptr_not_equal(file, MAP_FAILED);
    const struct parsed parsed = parse(file, bytes);
    munmap(file, bytes);
    return parsed;
}

static int temporary_file(void) {
    FILE *file = tmpfile();
    assert_non_null(file);
    return fileno(file);
}

static void fill_heap(void) {
    for (size_t i = 0; i < 5000; i++) {
        assert_non_null(hakmem_alloc(i % 900 + 1));
    }
}

static void snapshot_is_what_is_there(void **state) {
    (void)state;
    fill_heap();
    const int file = temporary_file();
    errno = 7;
    assert_int_equal(hakmem_snapshot_fd(file), 0);
    assert_int_equal(errno, 7);
    const struct parsed parsed = parse_file(file);
    assert_true(parsed.ended && parsed.root && parsed.maps);
    assert_int_equal(parsed.different, 0);
    assert_int_equal(parsed.process_id, getpid());
    assert_int_equal(parsed.locks, 7);
    assert_int_equal(parsed.locks_after, 7);
    assert_int_equal(parsed.held, 0);
    // The table of windows alone is a megabyte of zeros.
    assert_true(parsed.zero_bytes > MIB && parsed.memory_bytes < MIB);
}

static void what_cannot_be_written_is_told(void **state) {
    (void)state;
    int ends[2];
    fill_heap();
    assert_int_equal(hakmem_snapshot_fd(-1), -1);
    assert_int_equal(errno, EBADF);
    const int full = open("/dev/full", O_WRONLY);
    assert_int_equal(hakmem_snapshot_fd(full), -1);
    assert_int_equal(errno, ENOSPC);
    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    assert_int_equal(hakmem_snapshot_fd(ends[1]), -1);
    assert_int_equal(errno, EPIPE);
    // Nobody reads, and it does not block: that is waited for a while.
    assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
    assert_int_equal(hakmem_snapshot_fd(ends[1]), -1);
    assert_int_equal(errno, EAGAIN);
    // But once: a report has a hundred lines.
    const uint64_t begin_ns = os_clock_ns();
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(hakmem_snapshot_fd(ends[1]), -1);
    }
    assert_true(os_clock_ns() - begin_ns < UINT64_C(20000000000));
    // And none of that is in the way of the next one.
    const int file = temporary_file();
    assert_int_equal(hakmem_snapshot_fd(file), 0);
    assert_true(parse_file(file).ended);
}

// ---- Short writes and signals

struct slow_reader {
    int descriptor;
    char *text;
    size_t bytes, capacity;
};

static void *read_slowly(void *context) {
    struct slow_reader *reader = context;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    for (ssize_t got = 1; got > 0;) {
        require(reader->bytes + 3000 <= reader->capacity);
        got = read(reader->descriptor, reader->text + reader->bytes, 3000);
        reader->bytes += got > 0 ? (size_t)got : 0;
    }
    return NULL;
}

static volatile sig_atomic_t interrupted;

static void interrupt(int signal) {
    (void)signal;
    interrupted = 1;
}

// Through a pipe of one page, to a slow reader, amid a timer's signals. `flags`: of the end that is written to.
static void require_whole_behind(int flags) {
    int ends[2];
    pthread_t thread;
    struct slow_reader reader = {.capacity = 32 * MIB};
    fill_heap();
    interrupted = 0;
    assert_int_equal(pipe(ends), 0);
    fcntl(ends[1], F_SETPIPE_SZ, 4096);
    fcntl(ends[1], F_SETFL, flags);
    reader.descriptor = ends[0];
    reader.text = malloc(reader.capacity);
    struct sigaction action = {.sa_handler = interrupt};
    sigaction(SIGALRM, &action, NULL);
    assert_int_equal(pthread_create(&thread, NULL, read_slowly, &reader), 0);
    const struct itimerval often = {{0, 200}, {0, 200}};
    setitimer(ITIMER_REAL, &often, NULL);
    while (!interrupted) {
        usleep(100);
    }
    assert_int_equal(hakmem_snapshot_fd(ends[1]), 0);
    const struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, NULL);
    close(ends[1]);
    pthread_join(thread, NULL);
    const struct parsed parsed = parse(reader.text, reader.bytes);
    assert_true(parsed.ended);
    assert_int_equal(parsed.different, 0);
    free(reader.text);
    close(ends[0]);
}

static void short_writes_and_signals_lose_nothing(void **state) {
    (void)state;
    require_whole_behind(0);
    // As programs that wait for many descriptors make it, which whoever has the same end meets as well.
    require_whole_behind(O_NONBLOCK);
}

// ---- Other threads, forks, signals

// Relaxed: tells the threads to end; pairs with nothing.
static _Atomic(bool) stop;

static void *keep_busy(void *context) {
    (void)context;
    void *blocks[200] = {NULL};
    for (size_t i = 0; !atomic_load_relaxed(&stop); i++) {
        hakmem_dealloc(blocks[i % 200]);
        blocks[i % 200] = hakmem_alloc(i * 37 % 5000 + 1);
    }
    for (size_t i = 0; i < 200; i++) {
        hakmem_dealloc(blocks[i]);
    }
    return NULL;
}

static void threads_keep_running(void **state) {
    (void)state;
    pthread_t threads[4];
    is_quiet = false;
    fill_heap();
    for (size_t i = 0; i < ARRAY_COUNT(threads); i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, keep_busy, NULL), 0);
    }
    for (unsigned round = 0; round < 10; round++) {
        const int file = temporary_file();
        assert_int_equal(hakmem_snapshot_fd(file), 0);
        const struct parsed parsed = parse_file(file);
        assert_true(parsed.ended && parsed.root);
        assert_true(parsed.locks_after >= parsed.locks);
    }
    atomic_store_relaxed(&stop, true);
    for (size_t i = 0; i < ARRAY_COUNT(threads); i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(hakmem_check(), 0);
}

static void child_of_a_fork_writes_its_own(void **state) {
    (void)state;
    fill_heap();
    const int file = temporary_file();
    const pid_t child = fork();
    if (child == 0) {
        _exit(hakmem_snapshot_fd(file) == 0 ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    const struct parsed parsed = parse_file(file);
    assert_true(parsed.ended);
    assert_int_equal(parsed.process_id, child);
}

static void *write_into_full_pipe(void *context) {
    hakmem_snapshot_fd(*(int *)context);
    return NULL;
}

static void another_one_is_refused_meanwhile_but_not_in_a_child(void **state) {
    (void)state;
    int ends[2];
    char first;
    pthread_t thread;
    char directory[] = "/tmp/hakmem-test-XXXXXX";
    assert_non_null(mkdtemp(directory));
    options.snapshot_directory = directory;
    options.snapshot_signal = SIGUSR2;
    fill_heap();
    assert_int_equal(pipe(ends), 0);
    fcntl(ends[1], F_SETPIPE_SZ, 4096);
    assert_int_equal(pthread_create(&thread, NULL, write_into_full_pipe, &ends[1]), 0);
    // From its first byte until somebody reads on, the thread is within.
    assert_int_equal(read(ends[0], &first, 1), 1);
    const int file = temporary_file();
    assert_int_equal(hakmem_snapshot_fd(file), -1);
    assert_int_equal(errno, EBUSY);
    // Nor does the signal leave a file that stays empty.
    stderr_begin();
    snapshot_start();
    raise(SIGUSR2);
    assert_string_equal(stderr_end(), "hakmem: snapshot: none, another one is being written\n");
    assert_int_equal(rmdir(directory), 0);
    const pid_t child = fork();
    if (child == 0) {
        snapshot_fork_child();
        _exit(hakmem_snapshot_fd(file) == 0 ? 0 : 1);
    }
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    is_quiet = false;
    assert_true(parse_file(file).ended);
    signal(SIGPIPE, SIG_IGN);
    close(ends[0]);
    pthread_join(thread, NULL);
}

static void no_lock_is_waited_for(void **state) {
    (void)state;
    fill_heap();
    const int file = temporary_file();
    alarm(300);
    lock_acquire(&arena_state.lock);
    assert_int_equal(hakmem_snapshot_fd(file), 0);
    lock_release(&arena_state.lock);
    assert_int_equal(parse_file(file).held, 1);
}

static void the_start_that_a_handler_interrupts_is_not_waited_for(void **state) {
    (void)state;
    const int file = temporary_file();
    alarm(300);
    // As lifecycle_start() does.
    lock_acquire(&registry_state.lock);
    assert_int_equal(hakmem_snapshot_fd(file), -1);
    assert_int_equal(errno, EBUSY);
    lock_release(&registry_state.lock);
    assert_int_equal(hakmem_snapshot_fd(file), 0);
    // Later on the lock is one like any other.
    lock_acquire(&registry_state.lock);
    assert_int_equal(hakmem_snapshot_fd(file), 0);
    lock_release(&registry_state.lock);
}

static void a_signal_writes_one_to_a_file(void **state) {
    (void)state;
    char directory[] = "/tmp/hakmem-test-XXXXXX";
    char path[200];
    char text[300];
    fill_heap();
    assert_non_null(mkdtemp(directory));
    options.snapshot_directory = directory;
    options.snapshot_signal = SIGUSR2;
    for (unsigned number = 1; number <= 2; number++) {
        stderr_begin();
        snapshot_start();
        // As if the signal came in the middle of a slow path.
        lock_acquire(&arena_state.lock);
        raise(SIGUSR2);
        lock_release(&arena_state.lock);
        snprintf(path, sizeof path, "%s/hakmem.%d.%u.snapshot", directory, (int)getpid(), number);
        snprintf(text, sizeof text, "hakmem: snapshot: %s\n", path);
        assert_string_equal(stderr_end(), text);
        const int file = open(path, O_RDONLY);
        assert_true(parse_file(file).ended);
        struct stat status;
        fstat(file, &status);
        assert_int_equal(status.st_mode & 0777, 0600);
        unlink(path);
        if (number == 1) {
            // Taken: the next one has another name.
            symlink("/nowhere", path);
        }
    }
    snprintf(path, sizeof path, "%s/hakmem.%d.1.snapshot", directory, (int)getpid());
    unlink(path);
    assert_int_equal(rmdir(directory), 0);
    options.snapshot_directory = "/nowhere";
    stderr_begin();
    snapshot_start();
    raise(SIGUSR2);
    assert_non_null(strstr(stderr_end(), "/nowhere/hakmem."));
    // Another file has the number of standard error now.
    stderr_begin();
    raise(SIGUSR2);
    assert_string_equal(stderr_end(), "");
}

#if defined(__x86_64__)
// Of a filter that ends a process by SIGSYS.
static void call_what_is_refused(void) {
    const struct filter_instruction code[] = {
        {LOAD_WORD, 0, 0, NUMBER_AT},
        {JUMP_IF_EQUAL, 0, 1, SYS_getppid},
        {RETURN, 0, 0, RAISE_SIGSYS},
        {RETURN, 0, 0, ALLOW},
    };
    if (filter_install(code, ARRAY_COUNT(code))) {
        syscall(SYS_getppid);
    }
}
#endif

static void crash(int signal) {
    switch (signal) {
    case SIGSEGV:
        *(volatile char *)mmap(NULL, 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) = 1;
        break;
    case SIGBUS:
        *(volatile char *)mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_SHARED, temporary_file(), 0) =
            1;
        break;
#if defined(__x86_64__)
    case SIGILL:
        __asm__ volatile("ud2");
        break;
    case SIGFPE:
        __asm__ volatile("xorl %%edx, %%edx\n\tmovl $1, %%eax\n\txorl %%ecx, %%ecx\n\tidivl %%ecx"
                         :
                         :
                         : "eax", "ecx", "edx");
        break;
    case SIGTRAP:
        __asm__ volatile("int3");
        break;
    case SIGSYS:
        call_what_is_refused();
        break;
#endif
    default:
        break;
    }
}

// How a child crashes.
enum crash {
    CRASH_ALONE,
    CRASH_SENT_BEFORE,  // the signal was sent to it before
    CRASH_BESIDE,       // another thread crashes meanwhile, and would say so if it went on
};

static _Atomic(bool) is_crashing;

static void *crash_beside(void *context) {
    const int number = *(const int *)context;
    while (!atomic_load_relaxed(&is_crashing)) {
    }
    crash(number);
    (void)!write(2, "went on\n", 8);
    return NULL;
}

// The snapshots that a child left which crashed; all are complete.
static unsigned snapshots_of_child(int number, void (*earlier)(int), enum crash way) {
    char directory[] = "/tmp/hakmem-test-XXXXXX";
    char path[200];
    unsigned count = 0;
    assert_non_null(mkdtemp(directory));
    stderr_begin();
    const pid_t child = fork();
    if (child == 0) {
        signal(number, earlier);
        alarm(60);
        options.snapshot_directory = directory;
        options.snapshot_signal = (uint64_t)number;
        snapshot_start();
        pthread_t thread;
        if (way == CRASH_SENT_BEFORE) {
            raise(number);
        } else if (way == CRASH_BESIDE) {
            pthread_create(&thread, NULL, crash_beside, &number);
            atomic_store_relaxed(&is_crashing, true);
        }
        crash(number);
        (void)!write(2, "went on\n", 8);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_null(strstr(stderr_end(), "went on"));
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), number);
    for (;; count++) {
        snprintf(path, sizeof path, "%s/hakmem.%d.%u.snapshot", directory, (int)child, count + 1);
        const int file = open(path, O_RDONLY);
        if (file < 0) {
            break;
        }
        assert_true(parse_file(file).ended);
        close(file);
        unlink(path);
    }
    assert_int_equal(rmdir(directory), 0);
    return count;
}

static void a_crash_writes_one_and_ends_the_process(void **state) {
    (void)state;
    fill_heap();
    is_quiet = false;
#if defined(__x86_64__)
    const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS};
#else
    // The emulator that runs this repeats an ignored SIGBUS for ever, where the kernel ends the process.
    assert_int_equal(snapshots_of_child(SIGBUS, SIG_DFL, CRASH_ALONE), 1);
    const int signals[] = {SIGSEGV};
#endif
    for (size_t i = 0; i < ARRAY_COUNT(signals); i++) {
        assert_int_equal(snapshots_of_child(signals[i], SIG_DFL, CRASH_ALONE), 1);
        assert_int_equal(snapshots_of_child(signals[i], SIG_IGN, CRASH_ALONE), 1);
        assert_int_equal(snapshots_of_child(signals[i], SIG_DFL, CRASH_SENT_BEFORE), 2);
        for (unsigned times = 0; times < 5; times++) {
            assert_int_equal(snapshots_of_child(signals[i], SIG_DFL, CRASH_BESIDE), 1);
        }
    }
}

static void what_cannot_be_caught_is_told(void **state) {
    (void)state;
    const int signals[] = {SIGKILL, SIGSTOP, 32, 33, 65};
    for (size_t i = 0; i < ARRAY_COUNT(signals); i++) {
        char text[100];
        options.snapshot_signal = (uint64_t)signals[i];
        stderr_begin();
        snapshot_start();
        snprintf(
            text, sizeof text,
            "hakmem: option snapshot_signal: value '%d' is no signal that can be caught, kept 0\n",
            signals[i]);
        assert_string_equal(stderr_end(), text);
        assert_int_equal(options.snapshot_signal, 0);
    }
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(snapshot_is_what_is_there),
        cmocka_unit_test(what_cannot_be_written_is_told),
        cmocka_unit_test(short_writes_and_signals_lose_nothing),
        cmocka_unit_test(threads_keep_running),
        cmocka_unit_test(child_of_a_fork_writes_its_own),
        cmocka_unit_test(another_one_is_refused_meanwhile_but_not_in_a_child),
        cmocka_unit_test(no_lock_is_waited_for),
        cmocka_unit_test(the_start_that_a_handler_interrupts_is_not_waited_for),
        cmocka_unit_test(a_signal_writes_one_to_a_file),
        cmocka_unit_test(a_crash_writes_one_and_ends_the_process),
        cmocka_unit_test(what_cannot_be_caught_is_told),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
