// One step along a stack after the other, by the unwind tables that x86-64 and aarch64 code always has (.eh_frame), and along frame
// pointers where there are none: code that was made at run time, or another C library than glibc.
//
// A stack may be no chain of calls at all: greenlets copy parts of it away, coroutines begin where their maker says. So no address found
// on it is trusted: the kernel is asked whether it can be read (docs/decisions/0087-stacks-that-are-no-chain.md).
//
// Contract as in stack.h.
#pragma once

#include "base/base.h"

// Registers by their numbers in the tables, with the place of the call in one of them or beside.
#if defined(__x86_64__)
enum { UNWIND_FRAME_POINTER = 6, UNWIND_STACK_POINTER = 7, UNWIND_REGISTERS = 17 };
#elif defined(__aarch64__)
enum { UNWIND_FRAME_POINTER = 29, UNWIND_STACK_POINTER = 31, UNWIND_REGISTERS = 32 };
#endif

struct unwind {
    uintptr_t registers[UNWIND_REGISTERS];
    uintptr_t pc;
    bool is_exact;         // pc is an instruction that was interrupted, not one behind a call
    bool is_called;        // it is no code: the call is the latest that was done
    uintptr_t known_page;  // can be read: of the stack that this runs on, or the latest one
};

// Where the caller is.
void unwind_here(struct unwind *unwind);

// What was interrupted. `context` is the third argument of a signal's handler.
void unwind_interrupted(struct unwind *unwind, const void *context);

// Goes to the caller of where it is. False at the end, and where it is not known who that is.
bool unwind_step(struct unwind *unwind);
