#include "os/stack.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/system_call.h"
#include "os/os.h"
#include "os/unwind.h"

static void walk(struct stack *stack, struct unwind *unwind, uint32_t thread) {
    stack->thread = thread;
    stack->count = 0;
    do {
        stack->frames[stack->count++] = unwind->pc - !unwind->is_exact;
    } while (stack->count < STACK_FRAMES_MAX && unwind_step(unwind));
}

void os_stack_capture(struct stack *stack) {
    struct unwind unwind;
    unwind_here(&unwind);
    walk(stack, &unwind, os_thread_id());
}

void os_stack_capture_of(struct stack *stack, uint32_t thread) {
    struct unwind unwind;
    unwind_here(&unwind);
    walk(stack, &unwind, thread);
}

void os_stack_capture_interrupted(struct stack *stack, const void *context, bool is_called) {
    struct unwind unwind;
    unwind_interrupted(&unwind, context);
    unwind.is_called = is_called;
    walk(stack, &unwind, os_thread_id());
}

// ---- Modules

// One line of /proc/self/maps: "start-end perms offset device inode   path", the path from the 74th character on.
struct line {
    uintptr_t start, end;
    size_t length;
    char text[96 + MODULE_PATH_MAX];
};

static const char *read_number(const char *text, uintptr_t *value) {
    *value = 0;
    for (;; text++) {
        if (*text >= '0' && *text <= '9') {
            *value = *value * 16 + (uintptr_t)(*text - '0');
        } else if (*text >= 'a' && *text <= 'f') {
            *value = *value * 16 + (uintptr_t)(*text - 'a' + 10);
        } else {
            return text;
        }
    }
}

// The path of a line, "" when it has none.
static const char *read_line(struct line *line) {
    line->text[line->length] = '\0';
    const char *at = read_number(line->text, &line->start);
    at = read_number(at + (*at == '-'), &line->end);
    while (*at != '\0' && *at != '/') {
        at++;
    }
    return at;
}

// Takes a line into account: the lines of one file follow each other, the lowest address first.
static bool visit_line(struct line *line, uintptr_t address, struct os_module *module) {
    const char *path = read_line(line);
    if (*path == '/' && strncmp(path, module->path, MODULE_PATH_MAX - 1) != 0) {
        module->base = line->start;
        const size_t length = strnlen(path, MODULE_PATH_MAX - 1);
        memcpy(module->path, path, length);
        module->path[length] = '\0';
    }
    return *path == '/' && address >= line->start && address < line->end;
}

bool os_module_find(uintptr_t address, struct os_module *module) {
    const int saved_errno = errno;
    const long file = SYSTEM_CALL(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC);
    struct line line = {0};
    char buffer[256];
    bool found = false;
    module->base = 0;
    module->path[0] = '\0';
    for (long got = file < 0 ? 0 : 1; got > 0 && !found;) {
        got = SYSTEM_CALL(SYS_read, file, buffer, sizeof buffer);
        for (long i = 0; i < got && !found; i++) {
            if (buffer[i] != '\n') {
                if (line.length + 1 < sizeof line.text) {
                    line.text[line.length++] = buffer[i];
                }
                continue;
            }
            found = visit_line(&line, address, module);
            line.length = 0;
        }
    }
    if (file >= 0) {
        SYSTEM_CALL(SYS_close, file);
    }
    errno = saved_errno;
    return found;
}
