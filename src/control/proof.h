// Proof of whose malloc a process uses: for every loaded module, the file that each of its imported
// malloc-family symbols leads to, read from the slots that its calls go through.
//
// No function here allocates, and none asks the loader to search (dlsym reports a miss through
// malloc): the tables that the loader has mapped are read where they lie, under the loader's own
// read lock, which dl_iterate_phdr holds.
#pragma once

#include "base/base.h"
#include "config/build_id.h"

// How a module reaches a symbol.
enum proof_route {
    PROOF_CALL,     // through its procedure linkage table
    PROOF_POINTER,  // through its global offset table
    PROOF_DATA,     // through a pointer variable, which the program may have changed since
    PROOF_DEFINES,  // it has a definition of its own, whether or not anybody is led to it
};

struct proof_line {
    const char *module;  // path of the importing file, as the loader has it
    const char *symbol;
    const char *provider;  // path of the file the symbol leads to; "-" when it leads nowhere
    enum proof_route route;
};

// Called once per module, symbol and provider. The strings are valid during the call only.
typedef void proof_sink(void *context, const struct proof_line *line);

void proof_walk(proof_sink *sink, void *context);

// Path of the file that holds this function: libhakmem.so, or a program linked with libhakmem.a.
// Written to `path`, NUL-terminated and cut at `capacity`; returns its length.
size_t proof_library_path(char *path, size_t capacity);

// The GNU build id of that file.
struct build_id proof_build_id(void);
