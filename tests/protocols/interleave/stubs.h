// See stubs.c.
#pragma once

// At the begin of a program: all memory is unused.
void stubs_begin(void);
