#include "config/build_id.h"

#include <string.h>

static uint64_t round_to_4(uint64_t bytes) {
    return (bytes + 3) & ~UINT64_C(3);
}

// The build-id among the notes of one segment. Each is a header, a name and a description, these
// two filled up to 4 bytes.
static struct build_id among_notes(const char *notes, uint64_t bytes) {
    static const char owner[] = "GNU";
    struct build_id id = {0};
    ElfW(Nhdr) note;
    for (uint64_t at = 0; at + sizeof note <= bytes;) {
        memcpy(&note, notes + at, sizeof note);
        const uint64_t name = at + sizeof note;
        const uint64_t description = name + round_to_4(note.n_namesz);
        const uint64_t end = description + round_to_4(note.n_descsz);
        if (end > bytes) {
            break;
        }
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof owner &&
            memcmp(notes + name, owner, sizeof owner) == 0 && note.n_descsz <= sizeof id.bytes) {
            id.count = (uint8_t)note.n_descsz;
            memcpy(id.bytes, notes + description, note.n_descsz);
            break;
        }
        at = end;
    }
    return id;
}

// Of the file whose program headers these are, mapped `bias` above the addresses in them.
static struct build_id read_at(const ElfW(Phdr) * headers, size_t count, uintptr_t bias) {
    struct build_id id = {0};
    for (size_t i = 0; i < count && id.count == 0; i++) {
        // Notes aligned to 8 are of another kind (.note.gnu.property).
        if (headers[i].p_type == PT_NOTE && headers[i].p_align <= 4) {
            id = among_notes((const char *)(bias + headers[i].p_vaddr), headers[i].p_memsz);
        }
    }
    return id;
}

struct build_id build_id_of_file(const ElfW(Phdr) * headers, size_t count, uintptr_t file_start) {
    for (size_t i = 0; i < count; i++) {
        if (headers[i].p_type == PT_LOAD && headers[i].p_offset == 0) {
            return read_at(headers, count, file_start - headers[i].p_vaddr);
        }
    }
    return (struct build_id){0};
}

// The first page of a file begins a page in memory: where it does not, the headers are elsewhere.
#define HEADERS_ALIGN 4096

struct build_id build_id_of_program(const ElfW(Phdr) * headers, size_t count) {
    // The headers follow the file's own, which is where the file's first byte was loaded. A header that says where the headers are
    // not every program has: a static one that may lie anywhere has none.
    const uintptr_t file_start = (uintptr_t)headers - sizeof(ElfW(Ehdr));
    for (size_t i = 0; i < count; i++) {
        if (headers[i].p_type == PT_PHDR) {
            return read_at(headers, count, (uintptr_t)headers - headers[i].p_vaddr);
        }
    }
    return file_start % HEADERS_ALIGN == 0 ? build_id_of_file(headers, count, file_start)
                                           : (struct build_id){0};
}

bool build_id_is(const struct build_id *one, const struct build_id *other) {
    return one->count == other->count && memcmp(one->bytes, other->bytes, one->count) == 0;
}

bool build_id_parse(struct slice digits, struct build_id *out) {
    if (digits.count == 0 || digits.count % 2 != 0 || digits.count / 2 > sizeof out->bytes) {
        return false;
    }
    for (size_t i = 0; i < digits.count; i += 2) {
        uint64_t value;
        if (!slice_hexadecimal((struct slice){digits.bytes + i, 2}, &value)) {
            return false;
        }
        out->bytes[i / 2] = (uint8_t)value;
    }
    out->count = (uint8_t)(digits.count / 2);
    return true;
}
