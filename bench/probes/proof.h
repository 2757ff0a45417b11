/* The proof, from inside the measured process, of which allocator served it:
 *
 *   {"malloc": {"loader": FILE, "map": FILE}, "free": ..., "realloc": ..., "calloc": ...,
 *    "build_id": HEX, "moved": {"counter": NAME, "before": N, "after": N}}
 *
 * - loader: the file that the dynamic loader says holds the function this process calls;
 *   map: the file that the kernel says is mapped there. Two witnesses, neither asks the other.
 * - build_id: of the file that serves malloc, read from its notes in memory.
 * - moved: a counter that cannot stand still in an allocator that works, read before and after.
 *   The allocator's own where one is exported by the file that serves malloc; otherwise
 *   "data_hash", a hash of that file's writable data. The file is a single allocator with its state
 *   there (or, for a proxy, in the libraries it needs).
 *
 * Nothing here allocates, and nothing is read that would bring untouched pages into memory. The
 * code that is linked with this calls malloc by the same look-up as the rest of the process, unless
 * the program has a malloc of its own that it does not export: see bindings.h for that.
 */
#pragma once

#include <stdbool.h>

#include "slots.h"
#include "text.h"

/* Calls each function once. proof_before does so, too; a caller that measures what proof_before costs
 * calls this before: an allocator that sets itself up at the first call does it here. */
void proof_call_once(void);

/* Reads the counter for the first time: as early as possible, before the first use of malloc. */
void proof_before(void);

/* Reads it again: while the work's blocks live, or the counter may be back where it was. */
void proof_after(void);

/* Adds the proof to the text; reads the counter first if proof_after() has not. */
void proof_add(struct text *text);

/* The object that serves malloc; false when nobody can tell. After proof_before. */
bool proof_serving(struct module *module);
