// Runs a program of a few threads through every order of their atomic operations, and every value that each
// load may return under C11's rules for relaxed, acquire and release (no fences, no sequential
// consistency, no load from the future).
//
// Each location has its stores in one order, the order in which they were made. A thread has a view: of each
// location, the oldest store it may still read. A load takes any store from there on; a
// read-modify-write the last one. A release store carries the thread's view, an acquire load that reads
// it takes that over, and read-modify-writes in between pass it on. Plain memory is checked: whoever
// writes a named piece, or follows a pointer to a fresh one, must have the last writer in its view.
//
// Two courses of events that led to the same memory, the same views and the same values read by each thread
// are one state, continued once.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RELAXED = 0, ACQUIRE = 1, RELEASE = 2 };
enum step_operation { STEP_EXCHANGE, STEP_OR, STEP_ADD };

// ---- What the shadowed atomics call: `name` is the operand as the source has it. A field that is not
// shared is accessed at once.

uint64_t step_load(const char *name, void *field, size_t bytes, int order);
void step_store(const char *name, void *field, size_t bytes, uint64_t value, int order);
uint64_t step_update(const char *name, void *field, size_t bytes, enum step_operation operation,
                     uint64_t value, int order);
bool step_cas(const char *name, void *field, size_t bytes, void *expected, uint64_t desired,
              int order);

// ---- What a program of the explorer is made of

struct program {
    const char *name;
    unsigned thread_count;
    void (*threads[4])(void);
    // Sets everything up, and names what is shared.
    void (*begin)(void);
    // Every atomic is shared, those that begin() does not know of included.
    bool shares_all;
    // After all threads: everything is as it must be. Runs without interruption, on the last values.
    void (*end)(void);
};

// In begin(): a field that several threads access.
void explorer_share(void *field, size_t bytes);
// In begin(): memory of the program whose bytes tell its states apart.
void explorer_memory(void *start, size_t bytes);
// In begin() or a thread: fresh memory; who reads a pointer to it must have its writer in view.
void explorer_fresh(void *start, size_t bytes);

// In a thread: writes the piece of plain memory with this number.
void explorer_write(unsigned piece);
// In a thread: waits until the field has this value.
void explorer_wait(void *field, size_t bytes, uint64_t value);
// In a thread: a number below `count`, each in a course of events of its own.
unsigned explorer_choose(unsigned count);
// In a thread: tells the threads of the program apart; a multiple of 64, as a thread pointer.
uintptr_t explorer_thread(void);
// Ends the search: something is wrong.
void explorer_fail(const char *what);
#define EXPECT(condition) ((condition) ? (void)0 : explorer_fail(#condition))

// Drops an order from the operations whose operand contains this text.
struct weakening {
    const char *operand;
    int order;  // ACQUIRE or RELEASE
};

// Returns the number of states, and what was found wrong, or NULL.
const char *explorer_search(const struct program *program, const struct weakening *weakening,
                            uint64_t *states);
