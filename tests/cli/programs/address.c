// Takes malloc's address. Built without position independence, the program's own linkage entry
// becomes that address in every module. Then changes a variable that pointed to free.
#include <stdlib.h>

void *(*volatile take)(size_t) = malloc;
void (*volatile give)(void *) = free;

static void forget(void *block) {
    (void)block;
}

int main(void) {
    char *block = take(100);
    block[0] = 1;
    give(block);
    give = forget;
    give(block);
    return take == malloc ? 0 : 1;
}
