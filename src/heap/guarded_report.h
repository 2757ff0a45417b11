// What is said about guarded blocks: one line that names the mistake, then the stacks.
#pragma once

#include "base/text.h"
#include "heap/guarded.h"

// Adds where an address lies: "8 bytes inside the live 32-byte guarded block at 0x...".
void guarded_describe(struct text *text, const struct guarded_slot *slot, uintptr_t address);

// The stacks of a slot's allocation and, when it was freed, its free, to a file descriptor.
void guarded_print_stacks(int descriptor, const struct guarded_slot *slot);

// A stack under a heading, to a file descriptor.
void guarded_print_stack(int descriptor, const char *heading, const struct stack *stack);

// From now on a fault in the pool is reported before it takes its course; with the option abort at 0 the
// page is made accessible and the program goes on. A system that refuses leaves faults without a report.
void guarded_catch_faults(void);

// The process is the child of a fork: no other thread reports any more.
void guarded_report_fork_child(void);
