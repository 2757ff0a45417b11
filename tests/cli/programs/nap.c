// Allocates, makes a file if the second argument names one, and sleeps for as many milliseconds as the first says.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv) {
    long milliseconds = argc > 1 ? atol(argv[1]) : 0;
    struct timespec nap = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    char *volatile block = malloc(100);
    block[0] = 1;
    free(block);
    FILE *said = argc > 2 ? fopen(argv[2], "w") : NULL;
    if (said != NULL) {
        fclose(said);
    }
    return nanosleep(&nap, NULL);
}
