// Frees with every check, one by one, and the quarantine that holds freed blocks back before they are used again
// (hardened mode). All but heap_checks_frees() want the heap's lock. Slabs of a heap with a quarantine stay with it.
#pragma once

#include "config/options.h"
#include "heap/heap.h"

// Frees one block of a slab of this heap at once, with every check and through the quarantine. Reports a
// pointer that is no block in use. The lock is held.
void heap_free_checked(struct heap *heap, struct run *slab, void *block);

// Whether the options want every free of a small block to go through heap_free_checked, and so no
// magazines.
static inline bool heap_checks_frees(void) {
    return (options.immediate_double_free | options.zero_on_free | options.quarantine_blocks |
            options.slack_check) != 0;
}

// Puts all quarantined blocks back.
void heap_end_quarantine(struct heap *heap);
