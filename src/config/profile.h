// A profile: a small text file of what suits one program (docs/PROFILES.md). Besides options it may
// hold a table of size classes and blocks to have ready; and it says which program, and which version
// of this library, it was made for.
//
// All or nothing: a file with anything wrong in it counts for nothing.
#pragma once

#include "base/base.h"
#include "config/build_id.h"
#include "config/slice.h"

#define PROFILE_BYTES_MAX (64 * 1024)
#define PROFILE_CLASSES_MAX 72
#define PROFILE_CLASS_BYTES_LAST (64 * 1024)
#define PROFILE_PAGE_BYTES (64 * 1024)
#define PROFILE_SLAB_PAGES_MAX 32
#define PROFILE_SLAB_BLOCKS_MAX 4096
#define PROFILE_PREWARM_MAX 64
#define PROFILE_PREWARM_BLOCKS_MAX 4096
#define PROFILE_PREWARM_BYTES_MAX (4 * 1024 * 1024)  // of the blocks of all lines together

struct profile_class {
    uint32_t block_bytes;
    uint32_t slab_pages;  // 0: as the library sees fit
};

struct profile_prewarm {
    uint32_t bytes;
    uint32_t count;
};

struct profile {
    uint32_t class_count;  // 0: the library's own table
    uint32_t prewarm_count;
    struct profile_class classes[PROFILE_CLASSES_MAX];
    struct profile_prewarm prewarm[PROFILE_PREWARM_MAX];
};

// The profile that was taken; NULL without one. Written by options_load.
HIDDEN extern const struct profile *profile_in_force;

// Asked, before anything of a profile counts, whether it can: NULL, or what is wrong. NULL: nobody is
// asked.
HIDDEN extern const char *(*profile_accept)(const struct profile *profile);

// The bytes of the block that serves a request of 1 to 65536 bytes with the library's own table. NULL:
// as many as are asked for.
HIDDEN extern uint64_t (*profile_block_bytes)(uint64_t bytes);

// The first thing that is wrong.
struct profile_error {
    unsigned line;  // 0: nothing in particular
    struct slice name, value;
    const char *what;  // NULL: the value is none of the option called `name`
};

// The main program's program headers, to compare build-ids with. Without them no build-id is right.
void profile_set_program(const ElfW(Phdr) * headers, size_t count);

// Takes a name=value line that is not the profile's own. False, with `what`, when it does not count.
typedef bool profile_setting(struct slice name, struct slice value, unsigned line,
                             const char **what);

// Reads a whole text. False, with `error`, when anything in it is wrong; *out is undefined then.
bool profile_parse(struct slice text, profile_setting *setting, struct profile *out,
                   struct profile_error *error);

#define PROFILE_NAME_MAX 64
#define PROFILE_PATH_MAX 1024

// Says where the file of this library is: into `path`, NUL-terminated; false when that is not known.
// NULL: nobody knows.
HIDDEN extern bool (*profile_find_library)(char *path, size_t capacity);

// Reads the file that HAKMEM_PROFILE names: a path, or, without a slash, the name of an installed
// profile (profile_file.c). What was named is in `path`. False, with what is wrong and an error number
// or 0.
struct profile_file {
    struct slice text;
    char path[PROFILE_PATH_MAX];
    const char *what;
    int error;
};
bool profile_read(const char *name, struct profile_file *file);
