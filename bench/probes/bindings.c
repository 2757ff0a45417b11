#include "bindings.h"

#include <link.h>
#include <stdint.h>
#include <string.h>

#include "proof.h"
#include "slots.h"

enum { STRAYS_MAX = 8 };

struct walk {
    struct text *text;
    struct module program, serving, own;
    const struct module *module; /* the one being looked at */
    bool imports;                /* whether it calls, or would call, the serving file */
    size_t importer_count, stray_count;
};

static const char *file_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return *path == '\0' ? "the program" : slash == NULL ? path : slash + 1;
}

static bool is_c_library(const char *path) {
    const char *name = file_name(path);
    return strncmp(name, "libc.so", 7) == 0 || strncmp(name, "ld-linux", 8) == 0 ||
           strncmp(name, "linux-vdso", 10) == 0;
}

static void slot_visit(const char *symbol, uintptr_t address, void *argument) {
    struct walk *walk = argument;
    struct module target;
    if (!module_of(address, &target)) {
        return;
    }
    if (target.base == walk->serving.base || target.base == walk->module->base) {
        walk->imports = true; /* in its own module: not called yet */
    } else if (target.base != walk->program.base) {
        /* In a program linked at a fixed address a function's address is a stub of the program, for
         * all modules; where the stub leads is the program's own slot. A malloc that the program
         * exports would be the serving file. */
        char line[512];
        struct text words = text_in(line, sizeof line);
        text_add(&words, "%s: %s of %s", file_name(walk->module->name), symbol,
                 file_name(target.name));
        if (walk->stray_count++ < STRAYS_MAX) {
            text_add(walk->text, walk->stray_count == 1 ? "" : ",");
            text_add_string(walk->text, line);
        }
    }
}

static int module_visit(struct dl_phdr_info *info, size_t bytes, void *argument) {
    (void)bytes;
    struct walk *walk = argument;
    const struct module module = module_from(info);
    if (!is_c_library(module.name) && module.base != walk->serving.base &&
        module.base != walk->own.base) {
        walk->module = &module;
        walk->imports = false;
        slots_each(&module, slot_visit, walk);
        walk->importer_count += walk->imports;
    }
    return 0;
}

void bindings_add(struct text *text) {
    struct walk walk = {.text = text, .program = module_program()};
    text_add(text, "\"strays\":[");
    if (proof_serving(&walk.serving) && module_of((uintptr_t)bindings_add, &walk.own)) {
        dl_iterate_phdr(module_visit, &walk);
    }
    text_add(text, "],\"importers\":%zu", walk.importer_count);
}
