// Many threads with heaps of their own are at work while main returns.
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREAD_COUNT = 200 };

static _Atomic int begun;

static void *work(void *unused) {
    begun++;
    for (;;) {
        void *blocks[300];
        for (int i = 0; i < 300; i++) {
            blocks[i] = malloc(16 + (size_t)i * 100);
        }
        for (int i = 0; i < 300; i++) {
            free(blocks[i]);
        }
        usleep(2000);
    }
    return unused;
}

int main(void) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 * 1024);
    for (int i = 0; i < THREAD_COUNT; i++) {
        pthread_t thread;
        pthread_create(&thread, &attributes, work, NULL);
    }
    while (begun < THREAD_COUNT) {
        usleep(1000);
    }
    usleep(300 * 1000);
    return 0;
}
