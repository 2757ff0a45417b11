// A program whose memory is known: demand BLOCKS BYTES MAPPED MS
//
// Holds BLOCKS blocks of BYTES bytes and a mapping of MAPPED bytes that is none of malloc's, all written, for MS
// milliseconds.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int count, char **words) {
    if (count != 5) {
        return 2;
    }
    const size_t blocks = strtoul(words[1], NULL, 10), bytes = strtoul(words[2], NULL, 10);
    const size_t mapped = strtoul(words[3], NULL, 10);
    char *own = mmap(NULL, mapped + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (own == MAP_FAILED) {
        return 1;
    }
    memset(own, 1, mapped);
    for (size_t i = 0; i < blocks; i++) {
        char *block = malloc(bytes);
        if (block == NULL) {
            return 1;
        }
        memset(block, 1, bytes);
    }
    usleep((useconds_t)strtoul(words[4], NULL, 10) * 1000);
    return 0;
}
