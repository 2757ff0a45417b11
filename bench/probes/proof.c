#include "proof.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <inttypes.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "counter.h"

/* ---- the serving functions ---- */

struct stub {
    const char *symbol;
    const struct module *program;
    uintptr_t address;
};

static void stub_visit(const char *symbol, uintptr_t target, void *argument) {
    struct stub *stub = argument;
    struct module owner;
    if (strcmp(symbol, stub->symbol) == 0 && module_of(target, &owner) &&
        owner.base != stub->program->base) {
        stub->address = target;
    }
}

/* In a program linked at a fixed address, the address of a library's function is a stub inside the
 * program, for everybody; the program's own slot tells where it leads. */
static uintptr_t behind_stub(const char *symbol, uintptr_t address) {
    const struct module program = module_program();
    struct module owner;
    struct stub stub = {symbol, &program, address};
    if (module_of(address, &owner) && owner.base == program.base) {
        slots_each(&program, stub_visit, &stub);
    }
    return stub.address;
}

bool proof_serving(struct module *module) {
    return module_of(behind_stub("malloc", (uintptr_t)malloc), module);
}

/* A stub that is bound at its first call leads nowhere before. */
void proof_call_once(void) {
    static bool called;
    if (called) {
        return;
    }
    called = true;
    void *volatile block = malloc(1);
    free(block);
    block = calloc(1, 1);
    block = realloc(block, 2);
    free(block);
}

static uint64_t counter_before, counter_after;
static const char *counter_name; /* NULL until the second reading */

void proof_before(void) {
    struct module serving;
    proof_call_once();
    if (proof_serving(&serving)) {
        counter_find(&serving);
    }
    counter_read(&counter_before);
}

void proof_after(void) {
    counter_name = counter_read(&counter_after);
}

/* ---- build id ---- */

static void add_build_id(struct text *text, const struct module *module) {
    for (const ElfW(Phdr) *header = module_header(module, PT_NOTE, NULL); header != NULL;
         header = module_header(module, PT_NOTE, header)) {
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

static void add_function(struct text *text, const char *name, uintptr_t called) {
    char line[4096 + 128];
    Dl_info info = {0};
    const uintptr_t address = behind_stub(name, called);
    const bool known = dladdr((void *)address, &info) != 0 && info.dli_fname != NULL;
    text_add(text, "\"%s\":{\"loader\":", name);
    text_add_string(text, known ? info.dli_fname : "");
    text_add(text, ",\"map\":");
    text_add_string(text, map_file(address, line, sizeof line));
    text_add(text, "},");
}

void proof_add(struct text *text) {
    struct module serving;
    if (counter_name == NULL) {
        proof_after();
    }
    text_add(text, "{");
    add_function(text, "malloc", (uintptr_t)malloc);
    add_function(text, "free", (uintptr_t)free);
    add_function(text, "realloc", (uintptr_t)realloc);
    add_function(text, "calloc", (uintptr_t)calloc);
    text_add(text, "\"build_id\":\"");
    if (proof_serving(&serving)) {
        add_build_id(text, &serving);
    }
    text_add(text, "\",\"moved\":{\"counter\":\"%s\",", counter_name);
    text_add(text, "\"before\":%" PRIu64 ",\"after\":%" PRIu64 "}}", counter_before, counter_after);
}
