/* What the parts of the frame tell each other; no workload includes it. */
#pragma once

#include "frame.h"

/* Before the workload begins: looks for the floor allocator, and remembers the state of the
 * allocator's own data for the proof. */
void frame_prepare(void);

/* The figures of the timed part, as members of the result line. */
void frame_figures_add(struct text *text);

/* Looks for the floor allocator's entry point. */
void frame_floor_find(void);

/* Looks for hakmem's account of its memory. */
void frame_account_find(void);

/* Resident bytes of all frame_map() memory. */
uint64_t frame_mapped_bytes(void);
