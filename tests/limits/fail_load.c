// The load that fail_calls.c runs while system calls fail. It says "main" when it starts and ends
// with the number of refusals; after the marker no call fails any more, and nothing may be refused.
#include "load.h"

#include <sys/syscall.h>

static void *in_thread(void *argument) {
    (void)argument;
    void *blocks[40];
    for (size_t i = 0; i < 40; i++) {
        errno = 0;
        blocks[i] = malloc(100 * i * i);
        require(blocks[i] != NULL || errno == ENOMEM);
    }
    for (size_t i = 0; i < 40; i++) {
        free(blocks[i]);
    }
    return NULL;
}

static unsigned int refused_of(void *block) {
    require(block != NULL || errno == ENOMEM);
    return block == NULL;
}

static unsigned int pass(void) {
    unsigned int before = load_refusals();
    unsigned int refused = 0;
    // One size after another to one end, so that one refusal does not end it.
    for (size_t bytes = 16; bytes < 70000; bytes = bytes * 2 + 16) {
        void *blocks[20];
        for (int i = 0; i < 20; i++) {
            errno = 0;
            blocks[i] = malloc(bytes);
            refused += refused_of(blocks[i]);
            if (blocks[i] != NULL) {
                memset(blocks[i], 1, bytes);
            }
        }
        for (int i = 0; i < 20; i++) {
            free(blocks[i]);
        }
    }
    load_grow(3 * MIB, 200 * KIB);
    load_shrink(3);
    load_grow(8 * MIB, 5 * MIB);
    load_every_entry_point(100);
    load_every_entry_point(100000);
    load_every_entry_point(3 * MIB);
    // A buffer that grows and shrinks through every kind of block.
    char *buffer = NULL;
    size_t held = 0;
    for (size_t bytes = 1000; bytes < 24 * MIB; bytes *= 3) {
        errno = 0;
        char *grown = (char *)realloc(buffer, bytes);
        refused += refused_of(grown);
        if (grown != NULL) {
            require(held == 0 || (grown[0] == 'b' && grown[held - 1] == 'e'));
            buffer = grown;
            held = bytes;
            buffer[0] = 'b';
            buffer[held - 1] = 'e';
        }
    }
    while (held > 1000) {
        errno = 0;
        char *shrunk = (char *)realloc(buffer, held / 3);
        refused += refused_of(shrunk);
        if (shrunk == NULL) {
            break;
        }
        require(shrunk[0] == 'b');
        buffer = shrunk;
        held /= 3;
    }
    free(buffer);
    errno = 0;
    void *aligned = memalign(16 * MIB, 100000);
    refused += refused_of(aligned);
    require(aligned_to(aligned, 16 * MIB));
    free(aligned);
    malloc_trim(0);
    pthread_t thread;
    int error = pthread_create(&thread, NULL, in_thread, NULL);
    // libc allocates for a thread too, and answers EAGAIN when it cannot.
    require(error == 0 || error == EAGAIN);
    refused += error != 0;
    require(error != 0 || pthread_join(thread, NULL) == 0);
    pid_t child = fork();
    if (child == 0) {
        void *block = malloc(50000);
        free(block);
        _exit(0);
    }
    int status = -1;
    require(child > 0 && waitpid(child, &status, 0) == child);
    require(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    load_shrink(1);
    malloc_trim(0);
    return refused + load_refusals() - before;
}

int main(void) {
    behaviour_say("main");
    behaviour_require_allocator();
    unsigned int refused = pass();
    // The marker: a call that changes nothing and that nobody else makes.
    syscall(SYS_mprotect, 0x68616b0000, 0, 0);
    unsigned int later = pass();
    require_that(later == 0, "%u requests refused after the failures had ended", later);
    behaviour_require_sound_heap();
    behaviour_say("refused %u", refused);
    return 0;
}
