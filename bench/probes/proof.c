#include "proof.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <inttypes.h>
#include <link.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE_BYTES_MIN = 4096, MINCORE_PAGES = 256 };

/* ---- loaded objects ---- */

struct search {
    uintptr_t address;
    struct proof_module *found;
};

static int search_step(struct dl_phdr_info *info, size_t bytes, void *argument) {
    (void)bytes;
    struct search *search = argument;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        const uintptr_t start = info->dlpi_addr + header->p_vaddr;
        if (header->p_type == PT_LOAD && search->address >= start &&
            search->address - start < header->p_memsz) {
            *search->found = (struct proof_module){info->dlpi_name, info->dlpi_addr,
                                                   info->dlpi_phdr, info->dlpi_phnum};
            return 1;
        }
    }
    return 0;
}

bool proof_module_of(uintptr_t address, struct proof_module *module) {
    struct search search = {address, module};
    return dl_iterate_phdr(search_step, &search) != 0;
}

static const ElfW(Phdr) *
    header_next(const struct proof_module *module, ElfW(Word) type, const ElfW(Phdr) * previous) {
    const ElfW(Phdr) *headers = module->headers;
    for (const ElfW(Phdr) *at = previous == NULL ? headers : previous + 1;
         at < headers + module->header_count; at++) {
        if (at->p_type == type) {
            return at;
        }
    }
    return NULL;
}

static void add_build_id(struct text *text, const struct proof_module *module) {
    for (const ElfW(Phdr) *header = header_next(module, PT_NOTE, NULL); header != NULL;
         header = header_next(module, PT_NOTE, header)) {
        const size_t align = header->p_align < 4 ? 4 : header->p_align;
        const unsigned char *notes = (const unsigned char *)(module->base + header->p_vaddr);
        for (size_t at = 0; at + sizeof(ElfW(Nhdr)) <= header->p_memsz;) {
            const ElfW(Nhdr) *note = (const void *)(notes + at);
            const char *owner = (const char *)(note + 1);
            const size_t name_end = at + sizeof *note + note->n_namesz;
            const size_t content = (name_end + align - 1) / align * align;
            if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 &&
                memcmp(owner, "GNU", 4) == 0) {
                for (size_t i = 0; i < note->n_descsz; i++) {
                    text_add(text, "%02x", notes[content + i]);
                }
                return;
            }
            at = (content + note->n_descsz + align - 1) / align * align;
        }
    }
}

/* ---- counters ---- */

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

/* Pages that are not in memory hold zeros, which hash_words passes over, or what the file holds,
 * which cannot have changed. Reading them would add them to the process. */
static uint64_t hash_range(uint64_t hash, uintptr_t start, uintptr_t end) {
    const uintptr_t page = PAGE_BYTES_MIN;
    unsigned char resident[MINCORE_PAGES];
    const uintptr_t step = sizeof resident * page;
    for (uintptr_t at = start / page * page; at < end; at += step) {
        const uintptr_t bytes = end - at < step ? end - at : step;
        if (mincore((void *)at, bytes, resident) != 0) {
            continue;
        }
        for (uintptr_t i = 0; i * page < bytes; i++) {
            const uintptr_t from = at + i * page < start ? start : at + i * page;
            const uintptr_t to = at + (i + 1) * page > end ? end : at + (i + 1) * page;
            if (resident[i] & 1) {
                hash = hash_words(hash, from / sizeof(uint64_t), (const uint64_t *)from,
                                  (to - from) / sizeof(uint64_t));
            }
        }
    }
    return hash;
}

static uint64_t hash_module(uint64_t hash, const struct proof_module *module) {
    for (const ElfW(Phdr) *header = header_next(module, PT_LOAD, NULL); header != NULL;
         header = header_next(module, PT_LOAD, header)) {
        if (header->p_flags & PF_W) {
            const uintptr_t start = module->base + header->p_vaddr;
            const uintptr_t aligned = (start + sizeof(uint64_t) - 1) & ~(sizeof(uint64_t) - 1);
            hash = hash_range(hash, aligned, start + header->p_memsz);
        }
    }
    return hash;
}

struct needed {
    const char *soname;
    uint64_t hash;
};

static int hash_needed(struct dl_phdr_info *info, size_t bytes, void *argument) {
    (void)bytes;
    struct needed *needed = argument;
    const char *slash = strrchr(info->dlpi_name, '/');
    if (strcmp(slash == NULL ? info->dlpi_name : slash + 1, needed->soname) == 0) {
        const struct proof_module module = {info->dlpi_name, info->dlpi_addr, info->dlpi_phdr,
                                            info->dlpi_phnum};
        needed->hash = hash_module(needed->hash, &module);
        return 1;
    }
    return 0;
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
static uint64_t data_hash(const struct proof_module *module) {
    uint64_t hash = hash_module(1, module);
    const ElfW(Phdr) *dynamic = header_next(module, PT_DYNAMIC, NULL);
    if (dynamic == NULL) {
        return hash;
    }
    const ElfW(Dyn) *entries = (const ElfW(Dyn) *)(module->base + dynamic->p_vaddr);
    const char *strings = NULL;
    for (const ElfW(Dyn) *entry = entries; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_STRTAB) {
            strings = (const char *)entry->d_un.d_ptr; /* the loader has added the base */
        }
    }
    for (const ElfW(Dyn) *entry = entries; entry->d_tag != DT_NULL && strings != NULL; entry++) {
        const char *soname = strings + entry->d_un.d_val;
        if (entry->d_tag == DT_NEEDED && !is_runtime(soname)) {
            struct needed needed = {soname, hash};
            dl_iterate_phdr(hash_needed, &needed);
            hash = needed.hash;
        }
    }
    return hash;
}

/* A function of that name, if the file that serves malloc is the one that has it. */
static bool own_function(const char *name, const struct proof_module *module, void *function) {
    void *found = dlsym(RTLD_DEFAULT, name);
    struct proof_module owner;
    if (found == NULL || !proof_module_of((uintptr_t)found, &owner) || owner.base != module->base) {
        return false;
    }
    memcpy(function, &found, sizeof found);
    return true;
}

/* Where the counter comes from. Looked for once, before the first reading: a look-up that fails
 * allocates. */
static struct {
    struct proof_module module;
    void (*hakmem_totals)(uint64_t totals[]);
    int (*mallctl)(const char *, void *, size_t *, void *, size_t);
    struct mallinfo2 (*mallinfo2)(void);
    uint64_t before;
    bool found;
} counter;

enum { HAKMEM_TOTALS_WORDS = 7 }; /* struct hakmem_totals of hakmem.h */

static void counter_find(void) {
    struct proof_module *module = &counter.module;
    counter.found = proof_module_of((uintptr_t)malloc, module);
    if (counter.found && !own_function("hakmem_totals", module, &counter.hakmem_totals) &&
        !own_function("mallctl", module, &counter.mallctl)) {
        own_function("mallinfo2", module, &counter.mallinfo2);
    }
}

/* A hash fits into a floating point number's integers: JSON knows no others. */
static uint64_t as_number(uint64_t hash) {
    return hash >> 11;
}

static const char *counter_read(uint64_t *value) {
    if (counter.hakmem_totals != NULL) {
        uint64_t totals[HAKMEM_TOTALS_WORDS] = {0};
        counter.hakmem_totals(totals);
        *value = as_number(hash_words(1, 0, totals, HAKMEM_TOTALS_WORDS));
        return "hakmem_totals (hash)";
    }
    size_t bytes = sizeof *value;
    if (counter.mallctl != NULL &&
        counter.mallctl("thread.allocated", value, &bytes, NULL, 0) == 0) {
        return "thread.allocated (bytes)";
    }
    if (counter.mallinfo2 != NULL) {
        const struct mallinfo2 info = counter.mallinfo2();
        const size_t words[] = {info.arena,    info.ordblks,  info.hblks,   info.hblkhd,
                                info.uordblks, info.fordblks, info.keepcost};
        *value = as_number(hash_words(1, 0, words, sizeof words / sizeof words[0]));
        return "mallinfo2 (hash)";
    }
    *value = counter.found ? as_number(data_hash(&counter.module)) : 0;
    return counter.found ? "data_hash" : "none";
}

void proof_before(void) {
    counter_find();
    counter_read(&counter.before);
}

/* ---- the kernel's map ---- */

struct reader {
    int file;
    size_t at, filled;
    char buffer[4096];
};

static int reader_next(struct reader *reader) {
    if (reader->at == reader->filled) {
        const ssize_t got = read(reader->file, reader->buffer, sizeof reader->buffer);
        if (got <= 0) {
            return -1;
        }
        reader->filled = (size_t)got;
        reader->at = 0;
    }
    return (unsigned char)reader->buffer[reader->at++];
}

/* Reads one line, without its end; false at the end of the file. What is too long is cut. */
static bool reader_line(struct reader *reader, char *line, size_t line_bytes) {
    size_t used = 0;
    int c = reader_next(reader);
    if (c < 0) {
        return false;
    }
    for (; c >= 0 && c != '\n'; c = reader_next(reader)) {
        if (used + 1 < line_bytes) {
            line[used++] = (char)c;
        }
    }
    line[used] = '\0';
    return true;
}

/* The file mapped at the address, "" when there is none. The line is where the answer lies. */
static const char *map_file(uintptr_t address, char *line, size_t line_bytes) {
    struct reader reader = {.file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC)};
    const char *found = "";
    while (reader.file >= 0 && *found == '\0' && reader_line(&reader, line, line_bytes)) {
        char *end;
        const uintptr_t from = strtoull(line, &end, 16);
        const uintptr_t to = *end == '-' ? strtoull(end + 1, &end, 16) : 0;
        const char *path = strchr(end, '/');
        if (address >= from && address < to && path != NULL) {
            found = path;
        } else if (address >= from && address < to) {
            break;
        }
    }
    if (reader.file >= 0) {
        close(reader.file);
    }
    return found;
}

/* ---- the statement ---- */

static void add_function(struct text *text, const char *name, uintptr_t address) {
    char line[4096 + 128];
    Dl_info info = {0};
    const bool known = dladdr((void *)address, &info) != 0 && info.dli_fname != NULL;
    text_add(text, "\"%s\":{\"loader\":", name);
    text_add_string(text, known ? info.dli_fname : "");
    text_add(text, ",\"map\":");
    text_add_string(text, map_file(address, line, sizeof line));
    text_add(text, "},");
}

void proof_add(struct text *text) {
    uint64_t after = 0;
    const char *name = counter_read(&after);
    text_add(text, "{");
    add_function(text, "malloc", (uintptr_t)malloc);
    add_function(text, "free", (uintptr_t)free);
    add_function(text, "realloc", (uintptr_t)realloc);
    add_function(text, "calloc", (uintptr_t)calloc);
    text_add(text, "\"build_id\":\"");
    if (counter.found) {
        add_build_id(text, &counter.module);
    }
    text_add(text,
             "\",\"moved\":{\"counter\":\"%s\",\"before\":%" PRIu64 ",\"after\":%" PRIu64 "}}",
             name, counter.before, after);
}
