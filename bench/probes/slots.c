#include "slots.h"

#include <elf.h>
#include <link.h>
#include <string.h>

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

struct module module_from(const struct dl_phdr_info *info) {
    return (struct module){info->dlpi_name, info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum,
                           info->dlpi_tls_data};
}

const void *module_header(const struct module *module, uint32_t type, const void *previous) {
    const ElfW(Phdr) *headers = module->headers;
    const ElfW(Phdr) *at = previous == NULL ? headers : (const ElfW(Phdr) *)previous + 1;
    for (; at < headers + module->header_count; at++) {
        if (at->p_type == type) {
            return at;
        }
    }
    return NULL;
}

struct search {
    uintptr_t address;
    struct module *found;
};

bool module_holds(const struct module *module, uintptr_t address) {
    for (const ElfW(Phdr) *header = module_header(module, PT_LOAD, NULL); header != NULL;
         header = module_header(module, PT_LOAD, header)) {
        const uintptr_t start = module->base + header->p_vaddr;
        if (address >= start && address - start < header->p_memsz) {
            return true;
        }
    }
    return false;
}

static int module_step(struct dl_phdr_info *info, size_t bytes, void *argument) {
    (void)bytes;
    struct search *search = argument;
    const struct module module = module_from(info);
    if (!module_holds(&module, search->address)) {
        return 0;
    }
    *search->found = module;
    return 1;
}

bool module_of(uintptr_t address, struct module *module) {
    struct search search = {address, module};
    return dl_iterate_phdr(module_step, &search) != 0;
}

static int program_step(struct dl_phdr_info *info, size_t bytes, void *argument) {
    (void)bytes;
    struct module *program = argument;
    *program = module_from(info);
    return 1; /* the loader's list begins with it */
}

struct module module_program(void) {
    struct module program = {0};
    dl_iterate_phdr(program_step, &program);
    return program;
}

static bool is_watched(const char *symbol) {
    return strcmp(symbol, "malloc") == 0 || strcmp(symbol, "free") == 0 ||
           strcmp(symbol, "calloc") == 0 || strcmp(symbol, "realloc") == 0;
}

struct table {
    const ElfW(Rela) * rows;
    size_t count;
};

void slots_each(const struct module *module,
                void (*visit)(const char *symbol, uintptr_t target, void *argument),
                void *argument) {
    const ElfW(Phdr) *dynamic = module_header(module, PT_DYNAMIC, NULL);
    const ElfW(Dyn) *entry =
        dynamic == NULL ? NULL : (const ElfW(Dyn) *)(module->base + dynamic->p_vaddr);
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    struct table tables[2] = {{0}};
    for (; entry != NULL && entry->d_tag != DT_NULL; entry++) {
        const void *pointer = (const void *)entry->d_un.d_ptr; /* the loader has added the base */
        const size_t rows = entry->d_un.d_val / sizeof(ElfW(Rela));
        switch (entry->d_tag) {
        case DT_SYMTAB:
            symbols = pointer;
            break;
        case DT_STRTAB:
            strings = pointer;
            break;
        case DT_RELA:
            tables[0].rows = pointer;
            break;
        case DT_RELASZ:
            tables[0].count = rows;
            break;
        case DT_JMPREL:
            tables[1].rows = pointer;
            break;
        case DT_PLTRELSZ:
            tables[1].count = rows;
            break;
        default:
            break;
        }
    }
    for (size_t i = 0; i < 2 && symbols != NULL && strings != NULL; i++) {
        for (size_t j = 0; j < tables[i].count; j++) {
            const ElfW(Rela) *row = &tables[i].rows[j];
            const unsigned long type = ELF64_R_TYPE(row->r_info);
            const char *symbol = strings + symbols[ELF64_R_SYM(row->r_info)].st_name;
            if ((type == TYPE_WORD || type == TYPE_DATA || type == TYPE_CALL) &&
                is_watched(symbol)) {
                visit(symbol, *(const uintptr_t *)(module->base + row->r_offset), argument);
            }
        }
    }
}
