// The allocator with one planted fault in how it takes a refusal, chosen by FAULTS_PLANTED: what the
// runner must find. Linked with --wrap, so that calls from outside os/ come here first.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "os/os.h"

bool __real_os_purge(void *start, size_t bytes);
bool __real_os_unmap(void *start, size_t bytes);
bool __real_os_commit(void *start, size_t bytes);
void *__real_os_map(size_t bytes, size_t alignment);
bool __real_os_resize(void *start, size_t old_bytes, size_t new_bytes);
enum os_moved __real_os_move(void *start, size_t old_bytes, void *destination, size_t new_bytes,
                             bool writable);

bool __wrap_os_purge(void *start, size_t bytes);
bool __wrap_os_unmap(void *start, size_t bytes);
bool __wrap_os_commit(void *start, size_t bytes);
void *__wrap_os_map(size_t bytes, size_t alignment);
bool __wrap_os_resize(void *start, size_t old_bytes, size_t new_bytes);
enum os_moved __wrap_os_move(void *start, size_t old_bytes, void *destination, size_t new_bytes,
                             bool writable);

static bool is_planted(const char *name) {
    const char *planted = getenv("FAULTS_PLANTED");
    return planted != NULL && strcmp(planted, name) == 0;
}

// A refused madvise counts as done: the memory is taken for zero, and is not.
bool __wrap_os_purge(void *start, size_t bytes) {
    return __real_os_purge(start, bytes) || is_planted("purge");
}

// A refused munmap counts as done: nobody remembers the mapping.
bool __wrap_os_unmap(void *start, size_t bytes) {
    return __real_os_unmap(start, bytes) || is_planted("unmap");
}

bool __wrap_os_commit(void *start, size_t bytes) {
    return __real_os_commit(start, bytes) || is_planted("commit");
}

// One refused mmap, and no memory is ever asked for again.
void *__wrap_os_map(size_t bytes, size_t alignment) {
    static bool gave_up;
    void *start = gave_up ? NULL : __real_os_map(bytes, alignment);
    gave_up |= start == NULL && is_planted("map");
    return start;
}

// The library asks for memory as it is loaded, and ends the process where it is refused, in good order.
__attribute__((constructor)) static void start_early(void) {
    if (is_planted("start") && os_map(os_page_bytes(), os_page_bytes()) == NULL) {
        _exit(1);
    }
}

// mremap is never called: a row about it tests nothing.
bool __wrap_os_resize(void *start, size_t old_bytes, size_t new_bytes) {
    return !is_planted("unmoved") && __real_os_resize(start, old_bytes, new_bytes);
}

enum os_moved __wrap_os_move(void *start, size_t old_bytes, void *destination, size_t new_bytes,
                             bool writable) {
    return is_planted("unmoved")
               ? OS_MOVE_REFUSED
               : __real_os_move(start, old_bytes, destination, new_bytes, writable);
}
