// What a pointer that the program passes is, found without trusting it.
#pragma once

#include "heap/misuse.h"

struct run;
struct huge;

// What an address is, by the page map and what it leads to.
struct place {
    enum { PLACE_NONE, PLACE_SMALL, PLACE_LARGE, PLACE_HUGE, PLACE_GUARDED } kind;
    struct run *run;
    struct huge *huge;
    size_t usable_bytes;
};

// PLACE_NONE unless the address is the start of a block that is in use as far as the page map and
// the bitmaps tell (a block in a thread's cache counts as in use).
struct place place_find(uintptr_t address);

// As place_find, and the block must not be free as far as the bitmaps and the latest frees of this
// thread tell. Reports what is found instead, as `otherwise` where it is nothing of the heap's.
struct place place_find_live(uintptr_t address, enum misuse otherwise);

// Whether malloc may have made this block of such a request.
bool place_fits(const struct place *place, size_t alignment, size_t bytes);
