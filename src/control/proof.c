#include "control/proof.h"

#include <elf.h>
#include <link.h>
#include <string.h>

#include "os/file.h"
#include "os/os.h"

// The names whose callers must all end up in one allocator: libc's malloc family, glibc's second
// names for it, and the C++ operators that have their own entry in it.
static const char *const malloc_names[] = {
    "malloc",
    "free",
    "calloc",
    "realloc",
    "reallocarray",
    "cfree",
    "posix_memalign",
    "aligned_alloc",
    "memalign",
    "valloc",
    "pvalloc",
    "malloc_usable_size",
    "free_sized",
    "free_aligned_sized",
    "mallinfo",
    "mallinfo2",
    "mallopt",
    "malloc_info",
    "malloc_stats",
    "malloc_trim",
    "__libc_malloc",
    "__libc_free",
    "__libc_calloc",
    "__libc_realloc",
    "__libc_memalign",
    "__libc_valloc",
    "__libc_pvalloc",
    "__posix_memalign",
    "_Znwm",
    "_Znam",
    "_ZnwmRKSt9nothrow_t",
    "_ZnamRKSt9nothrow_t",
    "_ZnwmSt11align_val_t",
    "_ZnamSt11align_val_t",
    "_ZnwmSt11align_val_tRKSt9nothrow_t",
    "_ZnamSt11align_val_tRKSt9nothrow_t",
    "_ZdlPv",
    "_ZdaPv",
    "_ZdlPvm",
    "_ZdaPvm",
    "_ZdlPvRKSt9nothrow_t",
    "_ZdaPvRKSt9nothrow_t",
    "_ZdlPvSt11align_val_t",
    "_ZdaPvSt11align_val_t",
    "_ZdlPvmSt11align_val_t",
    "_ZdaPvmSt11align_val_t",
    "_ZdlPvSt11align_val_tRKSt9nothrow_t",
    "_ZdaPvSt11align_val_tRKSt9nothrow_t",
};

enum { NO_NAME = -1 };

// The relocation types that leave the address of a symbol in a slot, per processor.
static const struct slot_types {
    uint32_t machine;
    uint32_t call;
    uint32_t pointer;
    uint32_t data;
} slot_types[] = {
    {EM_X86_64, R_X86_64_JUMP_SLOT, R_X86_64_GLOB_DAT, R_X86_64_64},
    {EM_AARCH64, R_AARCH64_JUMP_SLOT, R_AARCH64_GLOB_DAT, R_AARCH64_ABS64},
};

// The start of the file that this code was linked into: the linker's own symbol. Every module of a
// process is for the same processor.
extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));

// What the loader has mapped of one module. Every pointer lies in [low, high), or is 0 with a size
// of 0, when the module has no such table.
struct module {
    const char *name;
    uintptr_t base;  // what is added to an address in the file
    uintptr_t low;
    uintptr_t high;
    const char *strings;
    size_t strings_bytes;
    const ElfW(Sym) * symbols;
    const ElfW(Rela) * calls;
    size_t calls_count;
    const ElfW(Rela) * slots;
    size_t slots_count;
    const uint32_t *gnu_hash;
    // What the loader tells debuggers: in the program alone.
    const struct namespace *namespaces;
};

// The loader's list of modules of one namespace, since version 2 (glibc 2.35) with the next: dlmopen and LD_AUDIT make
// them, and dl_iterate_phdr tells of the caller's alone.
struct namespace {
    struct r_debug list;
    const struct namespace *next;
};

// The provider of what leads into another one.
static const char elsewhere[] = "[another namespace]";

enum { PROGRAM_PATH_BYTES = 1024 };

struct walk {
    proof_sink *sink;
    void *context;
    const struct slot_types *types;
    // The provider that was last reported for each name of the module under the walk.
    const char *reported[ARRAY_COUNT(malloc_names)];
    // While it goes through the modules of another namespace.
    bool is_elsewhere;
};

// The loader knows the program itself by an empty name. Read at the first walk, when the process has one thread: later a sandbox may kill
// whoever reads a link, and /proc lie outside of the root.
static char program_path[PROGRAM_PATH_BYTES];

static const struct slot_types *own_slot_types(void) {
    for (size_t i = 0; i < ARRAY_COUNT(slot_types); i++) {
        if (slot_types[i].machine == __ehdr_start.e_machine) {
            return &slot_types[i];
        }
    }
    return NULL;
}

// ---- One module's tables

static bool module_holds(const struct module *module, uintptr_t address) {
    return address >= module->low && address < module->high;
}

// The loader replaces the addresses of a dynamic section by run-time ones, but not in every module
// (the kernel's own, for one) and not in every libc. 0 when it lies outside the module.
static uintptr_t module_address(const struct module *module, uintptr_t value) {
    if (module_holds(module, value)) {
        return value;
    }
    return module_holds(module, module->base + value) ? module->base + value : 0;
}

// How many items of `item_bytes` a table can have without leaving the module.
static size_t count_within(const struct module *module, uintptr_t start, size_t bytes,
                           size_t item_bytes) {
    if (start == 0) {
        return 0;
    }
    const size_t room = module->high - start;
    return (bytes < room ? bytes : room) / item_bytes;
}

static void module_read_dynamic(struct module *module, const ElfW(Dyn) * entry) {
    uintptr_t strings = 0, symbols = 0, calls = 0, slots = 0, gnu_hash = 0;
    size_t strings_bytes = 0, calls_bytes = 0, slots_bytes = 0;
    uintptr_t call_format = DT_RELA;
    for (; entry->d_tag != DT_NULL; entry++) {
        const uintptr_t value = entry->d_un.d_ptr;
        switch (entry->d_tag) {
        case DT_STRTAB:
            strings = module_address(module, value);
            break;
        case DT_STRSZ:
            strings_bytes = value;
            break;
        case DT_SYMTAB:
            symbols = module_address(module, value);
            break;
        case DT_JMPREL:
            calls = module_address(module, value);
            break;
        case DT_PLTRELSZ:
            calls_bytes = value;
            break;
        case DT_PLTREL:
            call_format = value;
            break;
        case DT_RELA:
            slots = module_address(module, value);
            break;
        case DT_RELASZ:
            slots_bytes = value;
            break;
        case DT_GNU_HASH:
            gnu_hash = module_address(module, value);
            break;
        case DT_DEBUG:
            module->namespaces = (const struct namespace *)value;
            break;
        default:
            break;
        }
    }
    if (strings == 0 || symbols == 0) {
        return;
    }
    module->strings = (const char *)strings;
    module->strings_bytes = count_within(module, strings, strings_bytes, 1);
    module->symbols = (const ElfW(Sym) *)symbols;
    module->gnu_hash = (const uint32_t *)gnu_hash;
    if (call_format == DT_RELA) {
        module->calls = (const ElfW(Rela) *)calls;
        module->calls_count = count_within(module, calls, calls_bytes, sizeof(ElfW(Rela)));
    }
    module->slots = (const ElfW(Rela) *)slots;
    module->slots_count = count_within(module, slots, slots_bytes, sizeof(ElfW(Rela)));
}

// Where a module lies, without its tables.
static struct module module_place(const struct dl_phdr_info *info) {
    struct module module = {.name = info->dlpi_name, .base = info->dlpi_addr, .low = UINTPTR_MAX};
    if (module.name == NULL || module.name[0] == '\0') {
        module.name = program_path;
    }
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type == PT_LOAD) {
            const uintptr_t start = module.base + segment->p_vaddr;
            module.low = start < module.low ? start : module.low;
            module.high =
                start + segment->p_memsz > module.high ? start + segment->p_memsz : module.high;
        }
    }
    return module;
}

static struct module module_read(const struct dl_phdr_info *info) {
    struct module module = module_place(info);
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type == PT_DYNAMIC &&
            module_holds(&module, module.base + segment->p_vaddr)) {
            module_read_dynamic(&module, (const ElfW(Dyn) *)(module.base + segment->p_vaddr));
        }
    }
    return module;
}

static const ElfW(Sym) * module_symbol(const struct module *module, size_t index) {
    const uintptr_t symbol = (uintptr_t)module->symbols + index * sizeof(ElfW(Sym));
    return module_holds(module, symbol) && module_holds(module, symbol + sizeof(ElfW(Sym)) - 1)
               ? (const ElfW(Sym) *)symbol
               : NULL;
}

static const char *symbol_name(const struct module *module, const ElfW(Sym) * symbol) {
    return symbol != NULL && symbol->st_name < module->strings_bytes
               ? module->strings + symbol->st_name
               : "";
}

// The GNU hash of a name: Bernstein's, times 33, from 5381.
static uint32_t gnu_hash_of(const char *name) {
    uint32_t hash = 5381;
    for (; *name != '\0'; name++) {
        hash = hash * 33 + (unsigned char)*name;
    }
    return hash;
}

// The module's own definition of a name that others can bind to, or NULL. Only GNU hash tables are
// read: every linker of the last fifteen years writes one.
static const ElfW(Sym) * module_definition(const struct module *module, const char *name) {
    if (module->gnu_hash == NULL) {
        return NULL;
    }
    const uint32_t bucket_count = module->gnu_hash[0];
    const uint32_t first_symbol = module->gnu_hash[1];
    const uint32_t bloom_words = module->gnu_hash[2];
    const uint32_t *buckets = module->gnu_hash + 4 + bloom_words * (sizeof(ElfW(Addr)) / 4);
    if (bucket_count == 0 || !module_holds(module, (uintptr_t)(buckets + bucket_count))) {
        return NULL;
    }
    const uint32_t hash = gnu_hash_of(name);
    const uint32_t *chain = buckets + bucket_count;
    uint32_t index = buckets[hash % bucket_count];
    for (; index >= first_symbol; index++) {
        const uint32_t *link = chain + (index - first_symbol);
        if (!module_holds(module, (uintptr_t)link)) {
            return NULL;
        }
        const ElfW(Sym) *symbol = module_symbol(module, index);
        if ((*link | 1) == (hash | 1) && strcmp(symbol_name(module, symbol), name) == 0 &&
            symbol->st_shndx != SHN_UNDEF) {
            return symbol;
        }
        if ((*link & 1) != 0) {
            return NULL;
        }
    }
    return NULL;
}

// ---- From a slot to a file

struct search {
    const char *name;
    uintptr_t address;
    struct module found;
};

static int find_by_address(struct dl_phdr_info *info, size_t bytes, void *context) {
    (void)bytes;
    struct search *search = context;
    const struct module place = module_place(info);
    if (!module_holds(&place, search->address)) {
        return 0;
    }
    search->found = module_read(info);
    return 1;
}

// Modules come in the order in which the loader searches them.
static int find_by_definition(struct dl_phdr_info *info, size_t bytes, void *context) {
    (void)bytes;
    struct search *search = context;
    const struct module module = module_read(info);
    if (module_definition(&module, search->name) == NULL) {
        return 0;
    }
    search->found = module;
    return 1;
}

static const char *first_definer(const char *name) {
    struct search search = {.name = name};
    return dl_iterate_phdr(find_by_definition, &search) != 0 ? search.found.name : "-";
}

// A program that is not position independent and takes a function's address uses its own linkage
// entry as that address, in every module. The slot behind that entry has the answer. NULL: it has no such entry.
static const char *behind_linkage_entry(const struct module *module, const char *name) {
    for (size_t i = 0; i < module->calls_count; i++) {
        const ElfW(Rela) *call = &module->calls[i];
        const ElfW(Sym) *symbol = module_symbol(module, ELF64_R_SYM(call->r_info));
        if (symbol == NULL || symbol->st_shndx != SHN_UNDEF ||
            strcmp(symbol_name(module, symbol), name) != 0) {
            continue;
        }
        const uintptr_t slot = module->base + call->r_offset;
        if (!module_holds(module, slot)) {
            return module->name;
        }
        struct search search = {.address = *(const uintptr_t *)slot};
        if (module_holds(module, search.address)) {
            return first_definer(name);
        }
        return dl_iterate_phdr(find_by_address, &search) != 0 ? search.found.name : module->name;
    }
    return NULL;
}

// The file that a slot's address leads to. NULL: the slot is a variable, and what the program stored there since is not
// this function of anybody, as Python's decimal does with libmpdec's pointers to malloc.
static const char *provider_of(const struct walk *walk, const struct module *module,
                               const char *name, enum proof_route route, uintptr_t address) {
    if (address == 0) {
        return "-";  // a weak reference that nothing defines
    }
    struct search search = {.address = address};
    if (module_holds(module, address)) {
        search.found = *module;
    } else if (dl_iterate_phdr(find_by_address, &search) == 0) {
        return walk->is_elsewhere ? elsewhere : "[not in any file]";
    }
    const struct module *target = &search.found;
    const ElfW(Sym) *definition = module_definition(target, name);
    if (definition != NULL && target->base + definition->st_value == address) {
        return target->name;
    }
    if (route == PROOF_CALL && target->low == module->low) {
        // The stub of a call that was never made: the loader will search when it is.
        return first_definer(name);
    }
    const char *behind = behind_linkage_entry(target, name);
    // A module without a table of its names, or whose resolver chose the address, may define it all the same.
    if (behind == NULL && route == PROOF_DATA && definition == NULL && target->gnu_hash != NULL) {
        return NULL;
    }
    return behind != NULL ? behind : target->name;
}

// ---- The walk

static int malloc_name_index(const char *name) {
    // Nearly every symbol of a process fails here, on bytes that the loader has just read too.
    if (name[0] == '_' ? name[1] == 'Z' && (name[2] != 'n' && name[2] != 'd')
                       : strchr("mfcrpav", name[0]) == NULL) {
        return NO_NAME;
    }
    for (size_t i = 0; i < ARRAY_COUNT(malloc_names); i++) {
        if (strcmp(malloc_names[i], name) == 0) {
            return (int)i;
        }
    }
    return NO_NAME;
}

static void walk_slot(struct walk *walk, const struct module *module, const char *name,
                      enum proof_route route, uintptr_t slot) {
    const int index = malloc_name_index(name);
    if (index == NO_NAME) {
        return;
    }
    const char *provider =
        provider_of(walk, module, name, route, *(const volatile uintptr_t *)slot);
    if (provider == NULL || walk->reported[index] == provider) {
        return;
    }
    walk->reported[index] = provider;
    const struct proof_line line = {module->name, name, provider, route};
    walk->sink(walk->context, &line);
}

static void walk_relocations(struct walk *walk, const struct module *module,
                             const ElfW(Rela) * relocations, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const size_t symbol_index = ELF64_R_SYM(relocations[i].r_info);
        const uint32_t type = (uint32_t)ELF64_R_TYPE(relocations[i].r_info);
        const uintptr_t slot = module->base + relocations[i].r_offset;
        enum proof_route route = PROOF_DATA;
        if (type == walk->types->call) {
            route = PROOF_CALL;
        } else if (type == walk->types->pointer) {
            route = PROOF_POINTER;
        } else if (type != walk->types->data) {
            continue;
        }
        if (symbol_index != 0 && module_holds(module, slot)) {
            walk_slot(walk, module, symbol_name(module, module_symbol(module, symbol_index)), route,
                      slot);
        }
    }
}

static int walk_module(struct dl_phdr_info *info, size_t bytes, void *context) {
    (void)bytes;
    struct walk *walk = context;
    const struct module module = module_read(info);
    if (module.symbols == NULL) {
        return 0;
    }
    memset(walk->reported, 0, sizeof walk->reported);
    walk_relocations(walk, &module, module.calls, module.calls_count);
    walk_relocations(walk, &module, module.slots, module.slots_count);
    // A module with an allocator of its own may call it without any slot, so it is named.
    static const char *const allocator_names[] = {"malloc", "_Znwm"};
    for (size_t i = 0; i < ARRAY_COUNT(allocator_names); i++) {
        if (module_definition(&module, allocator_names[i]) != NULL) {
            const struct proof_line line = {module.name, allocator_names[i], module.name,
                                            PROOF_DEFINES};
            walk->sink(walk->context, &line);
        }
    }
    return 0;
}

// The program headers of a file that is mapped from `start` on; NULL unless they lie in its first page, as linkers put them.
static const ElfW(Phdr) * headers_at(uintptr_t start, size_t *count) {
    const size_t page_bytes = os_page_bytes();
    if (start % page_bytes != 0 || os_resident_bytes((void *)start, page_bytes) == 0) {
        return NULL;
    }
    const ElfW(Ehdr) *file = (const ElfW(Ehdr) *)start;
    *count = file->e_phnum;
    const bool is_first_page =
        memcmp(file->e_ident, ELFMAG, SELFMAG) == 0 && file->e_phentsize == sizeof(ElfW(Phdr)) &&
        file->e_phoff <= page_bytes && *count <= (page_bytes - file->e_phoff) / sizeof(ElfW(Phdr));
    return is_first_page ? (const ElfW(Phdr) *)(start + file->e_phoff) : NULL;
}

// One of another namespace. The loader itself is in all of them.
static void walk_elsewhere(struct walk *walk, const struct link_map *map) {
    struct search search = {.address = (uintptr_t)map->l_ld};
    if (dl_iterate_phdr(find_by_address, &search) != 0) {
        return;
    }
    size_t count;
    const ElfW(Phdr) *headers = headers_at(map->l_addr, &count);
    if (headers == NULL) {
        // That it is there is enough: it has a C library of its own.
        const struct proof_line line = {map->l_name, "malloc", elsewhere, PROOF_CALL};
        walk->sink(walk->context, &line);
        return;
    }
    struct dl_phdr_info info = {.dlpi_addr = map->l_addr,
                                .dlpi_name = map->l_name,
                                .dlpi_phdr = headers,
                                .dlpi_phnum = (ElfW(Half))count};
    walk_module(&info, sizeof info, walk);
}

// Called for the program, which comes first, and under the lock that the lists change under.
static int walk_namespaces(struct dl_phdr_info *info, size_t bytes, void *context) {
    (void)bytes;
    struct walk *walk = context;
    const struct namespace *namespace = module_read(info).namespaces;
    walk->is_elsewhere = true;
    while (namespace != NULL && namespace->list.r_version >= 2) {
        namespace = namespace->next;
        const struct link_map *map = namespace != NULL ? namespace->list.r_map : NULL;
        for (; map != NULL; map = map->l_next) {
            walk_elsewhere(walk, map);
        }
    }
    return 1;
}

static void find_program_path(void) {
    if (program_path[0] != '\0') {
        return;
    }
    static const char unknown[] = "[program]";
    if (os_file_read_link("/proc/self/exe", program_path, sizeof program_path - 1) == 0) {
        memcpy(program_path, unknown, sizeof unknown);
    }
}

void proof_walk(proof_sink *sink, void *context) {
    struct walk walk = {.sink = sink, .context = context, .types = own_slot_types()};
    if (walk.types == NULL) {
        return;
    }
    find_program_path();
    dl_iterate_phdr(walk_module, &walk);
    dl_iterate_phdr(walk_namespaces, &walk);
}

// ---- The library itself

size_t proof_library_path(char *path, size_t capacity) {
    find_program_path();
    struct search search = {.address = (uintptr_t)&proof_library_path};
    if (dl_iterate_phdr(find_by_address, &search) == 0) {
        search.found.name = "-";
    }
    const size_t length = strnlen(search.found.name, capacity - 1);
    memcpy(path, search.found.name, length);
    path[length] = '\0';
    return length;
}

struct build_id proof_build_id(void) {
    const uintptr_t start = (uintptr_t)&__ehdr_start;
    return build_id_of_file((const ElfW(Phdr) *)(start + __ehdr_start.e_phoff),
                            __ehdr_start.e_phnum, start);
}
