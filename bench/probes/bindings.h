/* Which functions the modules of this process are bound to, read from the slots that the loader
 * filled: a program may carry a malloc of its own that nobody else sees, and then the proof of
 * proof.h speaks only for the libraries around it. */
#pragma once

#include "text.h"

/* Adds `"importers":N,"strays":["MODULE: NAME of FILE",...]`:
 * - importers: modules, the C library and this one left out, that call malloc or free by a slot
 *   which leads to the function that the whole process sees;
 * - strays: slots that lead to another file. A slot never used under lazy binding is left out. */
void bindings_add(struct text *text);
