/* Which functions the modules of this process are bound to, read from the slots that the loader
 * filled: a program may carry a malloc of its own that nobody else sees, and then the proof of
 * proof.h speaks only for the libraries around it. */
#pragma once

#include "text.h"

/* Adds `"strays":["MODULE: NAME of FILE",...],"importers":N`:
 * - strays: slots that lead to another file than the one that the whole process sees;
 * - importers: modules, the C library and this one left out, that have slots, none of them a stray.
 *   Those with slots that are bound at the first call are counted before that call. */
void bindings_add(struct text *text);
