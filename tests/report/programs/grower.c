// Grows on demand: each line of input, "COUNT BYTES", allocates so many blocks, touches and
// keeps them; "done" is the answer. Any other line ends it.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *kept[1 << 20];

int main(void) {
    size_t used = 0;
    size_t count = 0;
    size_t bytes = 0;
    setvbuf(stdout, NULL, _IONBF, 0);
    puts("ready");
    while (scanf("%zu %zu", &count, &bytes) == 2) {
        for (size_t i = 0; i < count && used < sizeof kept / sizeof *kept; i++, used++) {
            kept[used] = malloc(bytes);
            if (kept[used] == NULL) {
                return 1;
            }
            memset(kept[used], 1, bytes);
        }
        puts("done");
    }
    return 0;
}
