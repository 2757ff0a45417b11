// A library whose constructor waits for a thread that registers a handler of fork: dlopen runs it under the loader's lock.
#include "behaviour.h"

static int handled;

static void handle_fork(void) {
    handled++;
}

int atfork_plugin_handled(void) {
    return handled;
}

static void *register_handler(void *argument) {
    require(pthread_atfork(NULL, handle_fork, NULL) == 0);
    return argument;
}

__attribute__((constructor)) static void begin(void) {
    pthread_t thread;
    start_thread(&thread, 0, register_handler, NULL);
    require(pthread_join(thread, NULL) == 0);
}
