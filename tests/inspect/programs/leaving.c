// A thread that is inside some code for a moment, outside for a moment, and so on: "START END HALF", hexadecimal, are
// the code's range and where a byte is that is not 0 while it is inside. What it does there it lets functions outside
// of the range do, as an allocator does with memmove and clock_gettime. Ends with its standard input.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define MOMENT_NS 300000

static volatile char half;
// The linker defines both: section "code_of_it" holds inside() alone.
extern const char __start_code_of_it[], __stop_code_of_it[];

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * (int64_t)1000000000 + now.tv_nsec;
}

// Calls nothing, and is seldom left.
__attribute__((noinline)) static void leaf(void) {
    for (volatile unsigned i = 0; i < 20000; i++) {
    }
}

__attribute__((noinline)) static void moment(void) {
    const int64_t begin = now_ns();
    while (now_ns() - begin < MOMENT_NS) {
        leaf();
    }
}

__attribute__((noinline, section("code_of_it"))) static void inside(void) {
    struct timespec now;
    half = 1;
    for (unsigned i = 0; i < 8; i++) {
        leaf();
    }
    for (unsigned i = 0; i < 4000; i++) {
        clock_gettime(CLOCK_MONOTONIC, &now);
    }
    half = 0;
}

static void *work(void *argument) {
    for (;;) {
        inside();
        moment();
    }
    return argument;
}

int main(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, NULL) != 0) {
        return 2;
    }
    printf("%zx %zx %zx\n", (uintptr_t)__start_code_of_it, (uintptr_t)__stop_code_of_it,
           (uintptr_t)&half);
    fflush(stdout);
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    return 0;
}
