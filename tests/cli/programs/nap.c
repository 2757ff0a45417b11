// Allocates, and sleeps for as many milliseconds as its argument says.
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv) {
    long milliseconds = argc > 1 ? atol(argv[1]) : 0;
    struct timespec nap = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    char *volatile block = malloc(100);
    block[0] = 1;
    free(block);
    return nanosleep(&nap, NULL);
}
