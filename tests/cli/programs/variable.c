// A library whose pointer to malloc leads to a function of its own as soon as it is loaded, and whose pointer to free
// stays as the loader set it, as libmpdec's in Python's decimal.
#include <stdlib.h>

static void *own_take(size_t bytes) {
    static char block[100];
    return bytes <= sizeof block ? block : NULL;
}

void *(*variable_take)(size_t) = malloc;
void (*variable_give)(void *) = free;

__attribute__((constructor)) static void set(void) {
    variable_take = own_take;
}

int plugin_run(void) {
    variable_give(NULL);
    return variable_take == own_take ? 7 : 0;
}
