// Where the program is: the calls that led to a place, and the module an address lies in.
//
// Contract, as in os.h: no function here allocates or waits for a lock; errno is never touched. All
// may be called in a signal handler. How stacks are walked: docs/decisions/0008-stacks.md.
#pragma once

#include "base/base.h"

// The allocator's own frames come first, and the report leaves them out.
#define STACK_FRAMES_MAX 20

struct stack {
    uint32_t thread;  // os_thread_id(), 0 while there is nothing
    uint32_t count;
    // Within the call instructions, the innermost first.
    uintptr_t frames[STACK_FRAMES_MAX];
};

// The calling thread's stack.
void os_stack_capture(struct stack *stack);

// The same for a caller that knows its os_thread_id(), for which a sandbox may kill whoever asks.
void os_stack_capture_of(struct stack *stack, uint32_t thread);

// In a signal handler: the stack of what was interrupted. `context` is the handler's third argument. `is_called`: what is
// there is no code, and was called; the caller comes next.
void os_stack_capture_interrupted(struct stack *stack, const void *context, bool is_called);

#define MODULE_PATH_MAX 256

struct os_module {
    uintptr_t base;  // where its first byte is mapped
    char path[MODULE_PATH_MAX];
};

// The file that is mapped at an address, from /proc/self/maps. False when there is none, or no such
// file system.
bool os_module_find(uintptr_t address, struct os_module *module);
