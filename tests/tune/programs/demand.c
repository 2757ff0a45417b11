// A program whose memory is known: demand BLOCKS BYTES MAPPED MS [RECORDED_MS]
//
// Holds BLOCKS blocks of BYTES bytes and a mapping of MAPPED bytes that is none of malloc's, all written, for MS
// milliseconds; in research mode, when somebody wants to look at it, for RECORDED_MS.
#define _GNU_SOURCE
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int count, char **words) {
    if (count != 5 && count != 6) {
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
    const bool is_recorded = count == 6 && getenv("HAKMEM_RESEARCH") != NULL;
    usleep((useconds_t)strtoul(words[is_recorded ? 5 : 4], NULL, 10) * 1000);
    return 0;
}
