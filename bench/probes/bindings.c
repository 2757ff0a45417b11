#include "bindings.h"

#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proof.h"

#if defined(__x86_64__)
enum { TYPE_WORD = R_X86_64_64, TYPE_DATA = R_X86_64_GLOB_DAT, TYPE_CALL = R_X86_64_JUMP_SLOT };
#elif defined(__aarch64__)
enum {
    TYPE_WORD = R_AARCH64_ABS64,
    TYPE_DATA = R_AARCH64_GLOB_DAT,
    TYPE_CALL = R_AARCH64_JUMP_SLOT
};
#else
#error "the relocations of this machine are not known"
#endif

enum { STRAYS_MAX = 8 };

struct table {
    const ElfW(Rela) * rows;
    size_t count;
};

struct walk {
    struct text *text;
    struct proof_module program, serving, own;
    size_t importer_count, stray_count;
};

static const char *file_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

static bool is_c_library(const char *path) {
    const char *name = file_name(path);
    return strncmp(name, "libc.so", 7) == 0 || strncmp(name, "ld-linux", 8) == 0 ||
           strncmp(name, "linux-vdso", 10) == 0;
}

static bool is_watched(const char *symbol) {
    return strcmp(symbol, "malloc") == 0 || strcmp(symbol, "free") == 0 ||
           strcmp(symbol, "calloc") == 0 || strcmp(symbol, "realloc") == 0;
}

static void add_stray(struct walk *walk, const char *module, const char *symbol,
                      const char *target) {
    char line[512];
    struct text words = text_in(line, sizeof line);
    text_add(&words, "%s: %s of %s", *module == '\0' ? "the program" : file_name(module), symbol,
             *target == '\0' ? "the program" : file_name(target));
    if (walk->stray_count++ < STRAYS_MAX) {
        text_add(walk->text, walk->stray_count == 1 ? "" : ",");
        text_add_string(walk->text, line);
    }
}

/* Looks at the slots of one table; true when one of them leads to the serving file. */
static bool table_walk(struct walk *walk, const struct proof_module *module, struct table table,
                       const ElfW(Sym) * symbols, const char *strings) {
    bool imports = false;
    for (size_t i = 0; i < table.count; i++) {
        const ElfW(Rela) *row = &table.rows[i];
        const unsigned long type = ELF64_R_TYPE(row->r_info);
        const ElfW(Sym) *symbol = &symbols[ELF64_R_SYM(row->r_info)];
        if ((type != TYPE_WORD && type != TYPE_DATA && type != TYPE_CALL) ||
            !is_watched(strings + symbol->st_name)) {
            continue;
        }
        struct proof_module target;
        const uintptr_t address = *(const uintptr_t *)(module->base + row->r_offset);
        if (!proof_module_of(address, &target)) {
            continue;
        }
        if (target.base == walk->serving.base) {
            imports = true;
        } else if (target.base != module->base && target.base != walk->program.base) {
            /* In a program linked at a fixed address a function's address is a stub of the program,
             * for all modules: where the stub leads is the program's own slot. A malloc that the
             * program exports would be the serving file. */
            add_stray(walk, module->name, strings + symbol->st_name, target.name);
        }
    }
    return imports;
}

static int module_walk(struct dl_phdr_info *info, size_t bytes, void *argument) {
    (void)bytes;
    struct walk *walk = argument;
    const struct proof_module module = {info->dlpi_name, info->dlpi_addr, info->dlpi_phdr,
                                        info->dlpi_phnum};
    if (is_c_library(module.name) || module.base == walk->serving.base ||
        module.base == walk->own.base) {
        return 0;
    }
    const ElfW(Dyn) *entry = NULL;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC) {
            entry = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
        }
    }
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    struct table data = {0}, calls = {0};
    for (; entry != NULL && entry->d_tag != DT_NULL; entry++) {
        /* The loader has added the base to pointers. */
        if (entry->d_tag == DT_SYMTAB) {
            symbols = (const ElfW(Sym) *)entry->d_un.d_ptr;
        } else if (entry->d_tag == DT_STRTAB) {
            strings = (const char *)entry->d_un.d_ptr;
        } else if (entry->d_tag == DT_RELA) {
            data.rows = (const ElfW(Rela) *)entry->d_un.d_ptr;
        } else if (entry->d_tag == DT_RELASZ) {
            data.count = entry->d_un.d_val / sizeof(ElfW(Rela));
        } else if (entry->d_tag == DT_JMPREL) {
            calls.rows = (const ElfW(Rela) *)entry->d_un.d_ptr;
        } else if (entry->d_tag == DT_PLTRELSZ) {
            calls.count = entry->d_un.d_val / sizeof(ElfW(Rela));
        }
    }
    if (symbols != NULL && strings != NULL) {
        const bool by_data = table_walk(walk, &module, data, symbols, strings);
        const bool by_calls = table_walk(walk, &module, calls, symbols, strings);
        walk->importer_count += by_data || by_calls;
    }
    return 0;
}

static int first_module(struct dl_phdr_info *info, size_t bytes, void *argument) {
    (void)bytes;
    struct proof_module *program = argument;
    *program =
        (struct proof_module){info->dlpi_name, info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum};
    return 1;
}

void bindings_add(struct text *text) {
    struct walk walk = {.text = text};
    dl_iterate_phdr(first_module, &walk.program);
    text_add(text, "\"strays\":[");
    if (proof_module_of((uintptr_t)malloc, &walk.serving) &&
        proof_module_of((uintptr_t)bindings_add, &walk.own)) {
        dl_iterate_phdr(module_walk, &walk);
    }
    text_add(text, "],\"importers\":%zu", walk.importer_count);
}
