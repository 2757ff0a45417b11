// fork takes the lock of the C library's list of streams behind all handlers. Threads allocate under that lock, and wait under it for
// streams in which others allocate: it must come before the heap's locks, or all of them wait for each other.
#include "behaviour.h"

enum { FORK_COUNT = 600, LINE_COUNT = 20, LINE_BYTES_MAX = 100 * 1024 };

static FILE *lines;
static _Atomic bool all_done;

// getline allocates with its stream locked.
static void *read_lines(void *argument) {
    while (!all_done) {
        char *line = NULL;
        size_t bytes = 0;
        rewind(lines);
        while (getline(&line, &bytes, lines) > 0) {
        }
        free(line);
    }
    return argument;
}

static void *flush_all(void *argument) {
    while (!all_done) {
        fflush(NULL);
    }
    return argument;
}

static ssize_t allocate_and_write(void *cookie, const char *bytes, size_t count) {
    (void)cookie;
    (void)bytes;
    free(malloc(opaque(100000)));
    return (ssize_t)count;
}

// Of a stream that allocates when it is written.
static void *fill_and_flush(void *stream) {
    while (!all_done) {
        fputs("text", stream);
        fflush(NULL);
    }
    return NULL;
}

static void *open_and_close(void *argument) {
    FILE *stream = fopen("/dev/null", "w");
    require(stream != NULL);
    require(fclose(stream) == 0);
    return argument;
}

// The list's lock is nobody's: not the thread's that forked, which would not notice, either.
static void use_streams(void) {
    fflush(NULL);
    free(malloc(opaque(1000)));
    pthread_t thread;
    start_thread(&thread, 64 * KIB, open_and_close, NULL);
    require(pthread_join(thread, NULL) == 0);
}

static void fork_and_use_streams(void) {
    const pid_t child = fork();
    require(child >= 0);
    if (child == 0) {
        alarm(60);
        use_streams();
        _exit(0);
    }
    int status;
    require(waitpid(child, &status, 0) == child);
    require(status == 0);
}

static void run(void *(*const *bodies)(void *), int count, void *argument) {
    pthread_t threads[2];
    all_done = false;
    for (int i = 0; i < count; i++) {
        start_thread(&threads[i], 0, bodies[i], argument);
    }
    for (int i = 0; i < FORK_COUNT; i++) {
        fork_and_use_streams();
    }
    all_done = true;
    for (int i = 0; i < count; i++) {
        require(pthread_join(threads[i], NULL) == 0);
    }
    use_streams();
}

int main(void) {
    behaviour_require_allocator();
    alarm(300);
    // While there is one thread.
    fork_and_use_streams();
    lines = tmpfile();
    require(lines != NULL);
    for (int i = 0; i < LINE_COUNT; i++) {
        const size_t bytes = (size_t)200 << (i % 10);
        for (size_t at = 0; at < bytes && bytes <= LINE_BYTES_MAX; at++) {
            putc('x', lines);
        }
        putc('\n', lines);
    }
    require(fflush(lines) == 0);
    static void *(*const readers[])(void *) = {read_lines, flush_all};
    run(readers, 2, NULL);
    FILE *stream = fopencookie(NULL, "w", (cookie_io_functions_t){.write = allocate_and_write});
    require(stream != NULL);
    static void *(*const writers[])(void *) = {fill_and_flush};
    run(writers, 1, stream);
    behaviour_require_sound_heap();
    return 0;
}
