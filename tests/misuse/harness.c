// main() of every program: the mistake, then, when the program is still alive, the integrity
// workload, then a normal end.
//
// Set by the runner: MISUSE_THREAD=1 makes the mistake on a thread that ends before the workload;
// MISUSE_WORKLOAD=1 asks for the workload; HAKMEM_ABORT=0 asks hakmem to report and go on.
#include "misuse.h"

void about(const void *pointer) {
    behaviour_say("pointer 0x%zx", (size_t)(uintptr_t)pointer);
}

void about_block(const void *pointer, void *block) {
    about(pointer);
    behaviour_say("block 0x%zx %zu", (size_t)(uintptr_t)block, malloc_usable_size(block));
}

bool ignored(void) {
    const char *value = getenv("HAKMEM_ABORT");
    return value != NULL && strcmp(value, "0") == 0;
}

void misuse_end(enum misuse_end status, const char *format, ...) {
    static const char *const names[] = {
        [END_CORRUPT] = "corrupt", [END_BAD] = "bad", [END_ABSENT] = "absent"};
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    behaviour_say("%s: %s", names[status], text);
    _exit(status);
}

// Which file serves the functions that misuse is about, as the loader sees it from inside.
static void say_allocator(void) {
    void *const functions[] = {(void *)(uintptr_t)malloc, (void *)(uintptr_t)free,
                               (void *)(uintptr_t)realloc, (void *)(uintptr_t)malloc_usable_size};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        Dl_info served;
        require(dladdr(functions[i], &served) != 0);
        behaviour_say("served %s", served.dli_fname);
    }
}

static void *mistake_body(void *argument) {
    (void)argument;
    mistake();
    return NULL;
}

int main(void) {
    behaviour_require_allocator();
    say_allocator();
    if (getenv("MISUSE_THREAD") != NULL) {
        on_other_thread(mistake_body, NULL);
    } else {
        mistake();
    }
    behaviour_say("after");
    if (getenv("MISUSE_WORKLOAD") != NULL) {
        // On a new thread first: it is the one that takes over what the mistake's thread left.
        on_other_thread(integrity_workload, NULL);
        integrity_workload(NULL);
        behaviour_require_sound_heap();
        behaviour_say("sound");
    }
    return 0;
}
