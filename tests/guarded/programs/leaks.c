// Ends with exactly what its arguments ask for: leaks KIND..., each of
//   small large huge   a block of 100, 200,000 or 9,000,000 bytes is never freed
//   freed              one of each is freed
//   thread             a thread that ended did nothing
//   cached             a thread that ended, and this one, have freed thousands of blocks
//   remote             blocks of a thread that is gone are freed by this one
//   running            a thread that still runs holds one block of 1000 bytes
//   lost               a thread that still runs has freed thousands of blocks; a child ends, and then the parent
//   late               freed in the destructor of this program
//   closed             standard error is closed before the end
//   later:OPTION       the program turns an option on itself
//   file:PATH          every descriptor above standard error is closed, and PATH opened up to number 120
//   fork               a child ends with one more small block; the parent reports after it
//   text               a line through stdio, without a newline at its end
#include "behaviour.h"

static void *kept[16];
static size_t kept_count;

static void keep(size_t bytes) {
    kept[kept_count] = malloc(bytes);
    require(kept[kept_count] != NULL);
    memset(kept[kept_count++], 1, bytes);
}

enum { MANY = 5000 };
static void *many[MANY];

static void *allocate_many(void *argument) {
    (void)argument;
    for (size_t i = 0; i < MANY; i++) {
        many[i] = malloc(16 + i % 500);
        require(many[i] != NULL);
    }
    return NULL;
}

static void *free_many(void *argument) {
    (void)argument;
    for (size_t i = 0; i < MANY; i++) {
        free(many[i]);
    }
    return NULL;
}

static void *allocate_and_free_many(void *argument) {
    allocate_many(argument);
    return free_many(argument);
}

static void in_thread(void *(*body)(void *)) {
    pthread_t thread;
    start_thread(&thread, 0, body, NULL);
    require(pthread_join(thread, NULL) == 0);
}

static void *nothing(void *argument) {
    return argument;
}

static int ready[2];

static void *hold(void *argument) {
    (void)argument;
    keep(1000);
    require(write(ready[1], "", 1) == 1);
    for (;;) {
        pause();
    }
}

static void *free_many_and_stay(void *argument) {
    allocate_and_free_many(argument);
    require(write(ready[1], "", 1) == 1);
    for (;;) {
        pause();
    }
}

static void start_and_await(void *(*body)(void *)) {
    pthread_t thread;
    char byte;
    require(pipe(ready) == 0);
    start_thread(&thread, 0, body, NULL);
    require(read(ready[0], &byte, 1) == 1);
}

static void end_child(void) {
    const pid_t child = fork();
    if (child == 0) {
        in_thread(allocate_and_free_many);  // in what the lost thread left
        exit(7);
    }
    int status;
    require(waitpid(child, &status, 0) == child);
}

static void *freed_late;

__attribute__((destructor)) static void free_late(void) {
    free(freed_late);
}

extern int hakmem_option_set(const char *name, const char *value) __attribute__((weak));

static void open_files(const char *path) {
    for (int descriptor = 3; descriptor < 1024; descriptor++) {
        close(descriptor);
    }
    for (int last = 0; last < 120;) {
        last = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        require(last >= 0);
    }
}

static void leave(const char *kind) {
    if (strcmp(kind, "small") == 0) {
        keep(100);
    } else if (strcmp(kind, "large") == 0) {
        keep(200000);
    } else if (strcmp(kind, "huge") == 0) {
        keep(9000000);
    } else if (strcmp(kind, "freed") == 0) {
        free(malloc(100));
        free(malloc(200000));
        free(malloc(9000000));
    } else if (strcmp(kind, "thread") == 0) {
        in_thread(nothing);
    } else if (strcmp(kind, "cached") == 0) {
        in_thread(allocate_and_free_many);
        allocate_and_free_many(NULL);
    } else if (strcmp(kind, "remote") == 0) {
        in_thread(allocate_many);
        free_many(NULL);
    } else if (strcmp(kind, "running") == 0) {
        start_and_await(hold);
    } else if (strcmp(kind, "lost") == 0) {
        start_and_await(free_many_and_stay);
        end_child();
    } else if (strcmp(kind, "late") == 0) {
        freed_late = malloc(300);
    } else if (strcmp(kind, "closed") == 0) {
        close(STDERR_FILENO);
    } else if (strncmp(kind, "later:", 6) == 0) {
        require(hakmem_option_set != NULL && hakmem_option_set(kind + 6, "1") == 0);
    } else if (strncmp(kind, "file:", 5) == 0) {
        open_files(kind + 5);
    } else if (strcmp(kind, "text") == 0) {
        printf("text");
    } else if (strcmp(kind, "fork") == 0) {
        const pid_t child = fork();
        if (child == 0) {
            keep(100);
            exit(7);
        }
        int status;
        require(waitpid(child, &status, 0) == child);
        behaviour_say("child %d", WEXITSTATUS(status));
    } else {
        require_that(false, "what is %s?", kind);
    }
}

int main(int argument_count, char **arguments) {
    behaviour_require_allocator();
    for (int i = 1; i < argument_count; i++) {
        leave(arguments[i]);
    }
    return 3;
}
