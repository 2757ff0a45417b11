#include "os/stack.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "os/os.h"

static uintptr_t interrupted_pc(const void *context) {
    const ucontext_t *interrupted = context;
#if defined(__x86_64__)
    return (uintptr_t)interrupted->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return (uintptr_t)interrupted->uc_mcontext.pc;
#endif
}

static void begin(struct stack *stack) {
    stack->thread = os_thread_id();
    stack->count = 0;
}

// ---- The walk: by unwind tables with glibc, along frame pointers elsewhere

#if defined(__GLIBC__)
#include <unwind.h>

struct walk {
    struct stack *stack;
    uintptr_t from;  // frames above this one are left out; 0: none is
};

static _Unwind_Reason_Code visit(struct _Unwind_Context *context, void *argument) {
    struct walk *walk = argument;
    int is_exact = 0;
    const uintptr_t pc = _Unwind_GetIPInfo(context, &is_exact);
    if (walk->from != 0 && walk->from != pc) {
        return _URC_NO_REASON;
    }
    walk->from = 0;
    if (pc == 0 || walk->stack->count == STACK_FRAMES_MAX) {
        return _URC_END_OF_STACK;
    }
    walk->stack->frames[walk->stack->count++] = is_exact ? pc : pc - 1;
    return _URC_NO_REASON;
}

void os_stack_capture(struct stack *stack) {
    struct walk walk = {stack, 0};
    begin(stack);
    _Unwind_Backtrace(visit, &walk);
}

void os_stack_capture_interrupted(struct stack *stack, const void *context) {
    struct walk walk = {stack, interrupted_pc(context)};
    begin(stack);
    _Unwind_Backtrace(visit, &walk);
    if (stack->count == 0) {
        stack->frames[stack->count++] = interrupted_pc(context);
    }
}

#else
#include <sys/uio.h>

// Frames further apart than this are none.
#define FRAME_BYTES_MAX ((size_t)1 << 20)

// A frame pointer may be any value in code that keeps none: the kernel reads for us, and does not fault.
static bool read_frame(uintptr_t frame, uintptr_t words[2]) {
    const struct iovec to = {words, 2 * sizeof *words};
    const struct iovec from = {(void *)frame, 2 * sizeof *words};
    const int saved_errno = errno;
    const long got = syscall(SYS_process_vm_readv, getpid(), &to, 1, &from, 1, 0);
    errno = saved_errno;
    return got == (long)(2 * sizeof *words);
}

static void walk_frames(struct stack *stack, uintptr_t frame) {
    uintptr_t words[2];
    while (stack->count < STACK_FRAMES_MAX && frame % sizeof frame == 0 &&
           read_frame(frame, words) && words[1] != 0) {
        stack->frames[stack->count++] = words[1] - 1;
        if (words[0] <= frame || words[0] - frame > FRAME_BYTES_MAX) {
            break;
        }
        frame = words[0];
    }
}

void os_stack_capture(struct stack *stack) {
    begin(stack);
    walk_frames(stack, (uintptr_t)__builtin_frame_address(0));
}

void os_stack_capture_interrupted(struct stack *stack, const void *context) {
    const ucontext_t *interrupted = context;
    begin(stack);
    stack->frames[stack->count++] = interrupted_pc(context);
#if defined(__x86_64__)
    walk_frames(stack, (uintptr_t)interrupted->uc_mcontext.gregs[REG_RBP]);
#elif defined(__aarch64__)
    walk_frames(stack, (uintptr_t)interrupted->uc_mcontext.regs[29]);
#endif
}
#endif

// ---- Modules

// One line of /proc/self/maps: "start-end perms offset device inode   path".
struct line {
    uintptr_t start, end;
    size_t length;
    char text[64 + MODULE_PATH_MAX];
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
    const long file = syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC);
    struct line line = {0};
    char buffer[256];
    bool found = false;
    module->base = 0;
    module->path[0] = '\0';
    for (long got = file < 0 ? 0 : 1; got > 0 && !found;) {
        got = syscall(SYS_read, file, buffer, sizeof buffer);
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
        syscall(SYS_close, file);
    }
    errno = saved_errno;
    return found;
}
