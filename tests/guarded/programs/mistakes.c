// Makes one mistake with a guarded block: mistakes KIND [BYTES]. Every allocation is a sample (the test sets
// HAKMEM_GUARD_SAMPLE=1); the program takes blocks until one lies at the end of the page that it wants.
// The functions' names are what the test looks for in the stacks.
#include <signal.h>

#include "behaviour.h"

enum { LEFT = 0, RIGHT = 1 };

static size_t page_bytes;

char *make_block(size_t bytes, int end);
char *grow_block(char *block, size_t bytes);
void drop_block(void *block);
void write_byte(volatile char *at);
char read_byte(const volatile char *at);

char *make_block(size_t bytes, int end) {
    for (int i = 0; i < 100; i++) {
        char *block = (char *)malloc(bytes);
        require(block != NULL);
        if (((uintptr_t)block % page_bytes == 0) == (end == LEFT)) {
            memset(block, 1, bytes);
            return block;
        }
    }
    behaviour_fail(__FILE__, __LINE__, "no block at this end of its page");
}

char *grow_block(char *block, size_t bytes) {
    return (char *)realloc(block, bytes);
}

void drop_block(void *block) {
    free(block);
}

void write_byte(volatile char *at) {
    *at = 2;
}

char read_byte(const volatile char *at) {
    return *at;
}

static void *drop_in_thread(void *block) {
    drop_block(block);
    return NULL;
}

static void on_other_thread(void *(*body)(void *), void *argument) {
    pthread_t thread;
    start_thread(&thread, 0, body, argument);
    require(pthread_join(thread, NULL) == 0);
}

static void on_signal(int signal) {
    behaviour_say("handler of %d", signal);
    _exit(9);
}

void call_block(const void *block);
void call_block(const void *block) {
    ((void (*)(void))(uintptr_t)block)();
}

static void say_block(const char *block, const char *at) {
    behaviour_say("block 0x%zx at 0x%zx", (size_t)(uintptr_t)block, (size_t)(uintptr_t)at);
}

static void give_alternative_stack(void) {
    const stack_t stack = {.ss_sp = test_memory(64 * KIB), .ss_size = 64 * KIB};
    require(sigaltstack(&stack, NULL) == 0);
}

__attribute__((noinline)) static int use_up_stack(int depth) {
    volatile char room[4096];
    room[0] = (char)depth;
    return depth == 0 ? room[0] : use_up_stack(depth - 1) + room[0];
}

static void make_mistake(const char *kind, size_t bytes) {
    if (strcmp(kind, "call") == 0 || strcmp(kind, "call_freed") == 0) {
        char *block = make_block(bytes, LEFT);
        say_block(block, block);
        if (strcmp(kind, "call_freed") == 0) {
            drop_block(block);
        }
        call_block(block);
    } else if (strcmp(kind, "overflow") == 0) {
        char *block = make_block(bytes, RIGHT);
        say_block(block, block + bytes);
        write_byte(block + bytes);
        drop_block(block);
    } else if (strcmp(kind, "overflow_read") == 0) {
        char *block = make_block(bytes, RIGHT);
        say_block(block, block + bytes);
        read_byte(block + bytes);
    } else if (strcmp(kind, "overflow_left") == 0) {
        char *block = make_block(bytes, LEFT);
        say_block(block, block + bytes + 7);
        write_byte(block + bytes + 7);
        drop_block(block);
    } else if (strcmp(kind, "overflow_grown") == 0) {
        char *block = grow_block(make_block(bytes - bytes / 10, LEFT), bytes);
        say_block(block, block + bytes);
        write_byte(block + bytes);
        drop_block(block);
    } else if (strcmp(kind, "underflow") == 0) {
        char *block = make_block(bytes, LEFT);
        say_block(block, block - 1);
        write_byte(block - 1);
    } else if (strcmp(kind, "underflow_right") == 0) {
        char *block = make_block(bytes, RIGHT);
        say_block(block, block - 3);
        write_byte(block - 3);
        drop_block(block);
    } else if (strcmp(kind, "write_freed") == 0) {
        char *block = make_block(bytes, RIGHT);
        say_block(block, block + 5);
        drop_block(block);
        write_byte(block + 5);
    } else if (strcmp(kind, "read_freed") == 0) {
        char *block = make_block(bytes, LEFT);
        say_block(block, block + 5);
        on_other_thread(drop_in_thread, block);
        read_byte(block + 5);
    } else if (strcmp(kind, "double_free") == 0) {
        char *block = make_block(bytes, LEFT);
        say_block(block, block);
        drop_block(block);
        drop_block(block);
    } else if (strcmp(kind, "interior_free") == 0) {
        char *block = make_block(bytes, LEFT);
        say_block(block, block + 16);
        drop_block(block + 16);
    } else if (strcmp(kind, "interior_realloc") == 0) {
        char *block = make_block(bytes, LEFT);
        say_block(block, block + 16);
        require(realloc(block + 16, 10) == NULL);
    } else if (strcmp(kind, "unused") == 0) {
        // The last slot of the pool is not used yet.
        char *block = make_block(bytes, LEFT);
        char *at = block + 2 * 100 * page_bytes;
        say_block(block, at);
        read_byte(at);
    } else if (strcmp(kind, "handled") == 0) {
        // A handler that the program installs itself replaces the library's.
        signal(SIGSEGV, on_signal);
        write_byte(make_block(bytes, LEFT) - 1);
    } else if (strcmp(kind, "null") == 0) {
        write_byte((char *)opaque_pointer(NULL));
    } else if (strcmp(kind, "sent") == 0) {
        kill(getpid(), SIGSEGV);
        sleep_ms(10000);
    } else if (strcmp(kind, "stack") == 0) {
        // No room for a handler but on the alternative stack.
        give_alternative_stack();
        use_up_stack(1 << 20);
    } else if (strcmp(kind, "leak") == 0) {
        make_block(bytes, LEFT);
    } else {
        require_that(false, "what is %s?", kind);
    }
}

int main(int argument_count, char **arguments) {
    behaviour_require_allocator();
    require(argument_count >= 2);
    page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    make_mistake(arguments[1], argument_count > 2 ? (size_t)atol(arguments[2]) : 32);
    behaviour_require_sound_heap();
    behaviour_say("went on");
    return 0;
}
