// Reads memory that it never writes: zeros [fork]
//
// Zeroed blocks that are written, and as many of which each page is read, and so is the kernel's page of zeros, small or huge.
// Then, with "fork" in a child, which writes some more of both, prints "ready"; the end of standard input ends it.
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT 100
#define BYTES 500000
#define HUGE_BYTES (256UL << 20)
#define PAGE_BYTES 4096

static unsigned long sum;

static void read_pages(const volatile unsigned char *block, size_t bytes) {
    for (size_t at = 0; at < bytes; at += PAGE_BYTES) {
        sum += block[at];
    }
}

static unsigned char *zeroed(size_t bytes) {
    unsigned char *block = calloc(1, bytes);
    if (block == NULL) {
        abort();
    }
    return block;
}

int main(int argc, char **argv) {
    (void)argv;
    static unsigned char *blocks[2 * COUNT];
    for (int i = 0; i < 2 * COUNT; i++) {
        blocks[i] = zeroed(BYTES);
        if (i < COUNT) {
            memset(blocks[i], 1, BYTES);
        } else {
            read_pages(blocks[i], BYTES);
        }
    }
    unsigned char *huge = zeroed(HUGE_BYTES);
    read_pages(huge, HUGE_BYTES);
    huge[0] = 1;
    pid_t child = argc > 1 ? fork() : 0;
    if (child < 0) {
        return 2;
    }
    if (child == 0) {
        memset(blocks[0], 2, BYTES);
        memset(blocks[COUNT], 2, BYTES);
        char byte;
        if (write(1, "ready\n", 6) != 6) {
            return 2;
        }
        while (read(0, &byte, 1) > 0) {
        }
        return sum > 0;
    }
    int status;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 2;
}
