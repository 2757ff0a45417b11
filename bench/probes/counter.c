#include "counter.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <malloc.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

enum {
    PAGE_BYTES = 4096,
    PAGE_WORDS = PAGE_BYTES / sizeof(uint64_t),
    RESIDENT_PAGES = 256,
    PAGES_MAX = 64,     /* read in one reading; a library may have thousands */
    POINTERS_MAX = 128, /* followed */
    LOOKUPS_MAX = 1024, /* of what a word points to; each goes through the loader's list */
    POINTED_BYTES = 16384,
    STACK_BYTES = 8 << 20,
    HAKMEM_TOTALS_WORDS = 7 /* struct hakmem_totals of hakmem.h */
};

/* Each word counts with its place; `place` is that of the first. */
static uint64_t hash_words(uint64_t hash, uint64_t place, const uint64_t *words, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (words[i] != 0) {
            hash = (hash ^ words[i] ^ (place + i) << 32) * 0x9e3779b97f4a7c15u;
            hash ^= hash >> 29;
        }
    }
    return hash;
}

/* ---- an allocator's data ---- */

/* A walk over the allocator's own words, and over the beginnings of what they point to. */
struct data {
    int memory; /* /proc/self/mem: reads what could not be touched, such as pages without access */
    uint64_t hash;
    size_t pages_left, pointers_left, lookups_left;
    uintptr_t last_followed;
    const struct module *module; /* whose words are read */
};

static void data_range(struct data *data, uintptr_t start, uintptr_t end, bool follow);

/* Many an allocator keeps its state in memory that it mapped; only the pointers are in its data.
 * Not followed: into loaded objects, which are hashed or not by their own right, and into the
 * stack, which changes by itself. */
static void data_follow(struct data *data, const uint64_t *words, size_t count) {
    const uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    for (size_t i = 0; i < count && data->pointers_left > 0 && data->pages_left > 0; i++) {
        const uintptr_t target = words[i] / POINTED_BYTES * POINTED_BYTES;
        struct module module;
        if (target < PAGE_BYTES || words[i] % sizeof(void *) != 0 || words[i] >> 47 != 0 ||
            target == data->last_followed ||
            (target > here - STACK_BYTES && target < here + STACK_BYTES) ||
            module_holds(data->module, words[i])) {
            continue;
        }
        if (data->lookups_left == 0) {
            return;
        }
        data->lookups_left--;
        if (module_of(words[i], &module)) {
            continue;
        }
        data->last_followed = target;
        data->pointers_left--;
        data_range(data, target, target + POINTED_BYTES, false);
    }
}

static void data_page(struct data *data, uintptr_t from, uintptr_t to, bool follow) {
    uint64_t words[PAGE_WORDS];
    const ssize_t got = pread(data->memory, words, to - from, (off_t)from);
    data->pages_left--;
    if (got > 0) {
        const size_t count = (size_t)got / sizeof *words;
        data->hash = hash_words(data->hash, from / sizeof *words, words, count);
        if (follow) {
            data_follow(data, words, count);
        }
    }
}

/* Pages that are not in memory hold zeros, which hash_words passes over, or what the file holds,
 * which cannot have changed: reading them would add them to the process. What is not mapped is
 * passed over as well. */
static void data_range(struct data *data, uintptr_t start, uintptr_t end, bool follow) {
    unsigned char resident[RESIDENT_PAGES];
    for (uintptr_t page = start / PAGE_BYTES * PAGE_BYTES; page < end && data->pages_left > 0;) {
        const uintptr_t pages_left = (end - page + PAGE_BYTES - 1) / PAGE_BYTES;
        const uintptr_t pages = pages_left < RESIDENT_PAGES ? pages_left : RESIDENT_PAGES;
        const bool mapped = mincore((void *)page, pages * PAGE_BYTES, resident) == 0;
        for (uintptr_t i = 0; i < pages && data->pages_left > 0; i++, page += PAGE_BYTES) {
            if (mapped && (resident[i] & 1)) {
                data_page(data, page < start ? start : page,
                          page + PAGE_BYTES > end ? end : page + PAGE_BYTES, follow);
            }
        }
    }
}

static uintptr_t word_aligned(uintptr_t address) {
    return (address + sizeof(uint64_t) - 1) / sizeof(uint64_t) * sizeof(uint64_t);
}

static struct data data_start(void) {
    return (struct data){
        .memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC),
        .hash = 1,
        .pages_left = PAGES_MAX,
        .pointers_left = POINTERS_MAX,
        .lookups_left = LOOKUPS_MAX,
    };
}

static uint64_t data_end(const struct data *data) {
    if (data->memory >= 0) {
        close(data->memory);
    }
    return data->hash;
}

/* The variables of the file, without and with what they point to. What the loader protects when it
 * has relocated it (RELRO, at the beginning of its segment) cannot change and is left out. */
static void data_variables(struct data *data, const struct module *module, bool follow) {
    const ElfW(Phdr) *relro = module_header(module, PT_GNU_RELRO, NULL);
    data->module = module;
    for (const ElfW(Phdr) *header = module_header(module, PT_LOAD, NULL); header != NULL;
         header = module_header(module, PT_LOAD, header)) {
        const uintptr_t start = module->base + header->p_vaddr;
        const bool constant = relro != NULL && relro->p_vaddr == header->p_vaddr;
        const uintptr_t variable =
            constant ? (start + relro->p_memsz) / PAGE_BYTES * PAGE_BYTES : word_aligned(start);
        if (header->p_flags & PF_W) {
            data_range(data, variable > start ? variable : word_aligned(start),
                       start + header->p_memsz, follow);
        }
    }
}

static void data_module(struct data *data, const struct module *module) {
    /* What is the calling thread's own comes first: it leads to what changes most. */
    const ElfW(Phdr) *header = module_header(module, PT_TLS, NULL);
    data->module = module;
    if (header != NULL && module->local != NULL) {
        const uintptr_t start = (uintptr_t)module->local;
        data_range(data, word_aligned(start), start + header->p_memsz, true);
    }
    data_variables(data, module, true);
}

struct needed {
    const char *soname;
    struct data *data;
};

static int needed_step(struct dl_phdr_info *info, size_t bytes, void *argument) {
    (void)bytes;
    const struct needed *needed = argument;
    const char *slash = strrchr(info->dlpi_name, '/');
    if (strcmp(slash == NULL ? info->dlpi_name : slash + 1, needed->soname) != 0) {
        return 0;
    }
    const struct module module = module_from(info);
    data_module(needed->data, &module);
    return 1;
}

static bool is_runtime(const char *soname) {
    static const char *const runtime[] = {"libc.so",  "libm.so",      "libpthread.so", "libdl.so",
                                          "librt.so", "libstdc++.so", "libgcc_s.so",   "ld-linux"};
    for (size_t i = 0; i < sizeof runtime / sizeof runtime[0]; i++) {
        if (strncmp(soname, runtime[i], strlen(runtime[i])) == 0) {
            return true;
        }
    }
    return false;
}

/* The file's own data and, since its malloc may only pass calls on, that of what it needs. */
static uint64_t data_hash(const struct module *module) {
    struct data data = data_start();
    data_module(&data, module);
    const ElfW(Phdr) *dynamic = module_header(module, PT_DYNAMIC, NULL);
    const ElfW(Dyn) *entries =
        dynamic == NULL ? NULL : (const ElfW(Dyn) *)(module->base + dynamic->p_vaddr);
    const char *strings = NULL;
    for (const ElfW(Dyn) *entry = entries; entry != NULL && entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_STRTAB) {
            strings = (const char *)entry->d_un.d_ptr; /* the loader has added the base */
        }
    }
    for (const ElfW(Dyn) *entry = entries; strings != NULL && entry->d_tag != DT_NULL; entry++) {
        struct needed needed = {strings + entry->d_un.d_val, &data};
        if (entry->d_tag == DT_NEEDED && !is_runtime(needed.soname)) {
            dl_iterate_phdr(needed_step, &needed);
        }
    }
    return data_end(&data);
}

/* ---- the counter ---- */

static struct {
    struct module serving;
    bool known;
    void (*hakmem_totals)(uint64_t totals[]);
    int (*mallctl)(const char *, void *, size_t *, void *, size_t);
    struct mallinfo2 (*mallinfo2)(void);
} source;

/* A function of that name, if the file that serves malloc is the one that has it. */
static bool own_function(const char *name, void *function) {
    void *found = dlsym(RTLD_DEFAULT, name);
    struct module owner;
    if (found == NULL || !module_of((uintptr_t)found, &owner) ||
        owner.base != source.serving.base) {
        return false;
    }
    memcpy(function, &found, sizeof found);
    return true;
}

void counter_find(const struct module *serving) {
    source.serving = *serving;
    source.known = true;
    if (!own_function("hakmem_totals", &source.hakmem_totals) &&
        !own_function("mallctl", &source.mallctl)) {
        own_function("mallinfo2", &source.mallinfo2);
    }
}

/* A hash fits into a floating point number's integers: some readers of JSON know no others. */
static uint64_t as_number(uint64_t hash) {
    return hash >> 11;
}

/* mallinfo2 tells what is there now. Blocks with a mapping of their own come and go without a trace
 * in it, but not in the C library's variables: the largest number and size of such mappings. */
static uint64_t mallinfo2_hash(void) {
    const struct mallinfo2 info = source.mallinfo2();
    const uint64_t words[] = {info.arena,    info.ordblks,  info.hblks,   info.hblkhd,
                              info.uordblks, info.fordblks, info.keepcost};
    struct data data = data_start();
    data_variables(&data, &source.serving, false);
    return hash_words(data_end(&data), 0, words, sizeof words / sizeof words[0]);
}

const char *counter_read(uint64_t *value) {
    if (source.hakmem_totals != NULL) {
        uint64_t totals[HAKMEM_TOTALS_WORDS] = {0};
        source.hakmem_totals(totals);
        *value = as_number(hash_words(1, 0, totals, HAKMEM_TOTALS_WORDS));
        return "hakmem_totals (hash)";
    }
    size_t bytes = sizeof *value;
    if (source.mallctl != NULL && source.mallctl("thread.allocated", value, &bytes, NULL, 0) == 0) {
        return "thread.allocated (bytes)";
    }
    if (source.mallinfo2 != NULL) {
        *value = as_number(mallinfo2_hash());
        return "mallinfo2 and variables (hash)";
    }
    *value = source.known ? as_number(data_hash(&source.serving)) : 0;
    return source.known ? "data_hash" : "none";
}
