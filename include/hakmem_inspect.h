/* hakmem: the heap of a process, for readers outside of it. hakmem_inspect_root says where everything is that
 * hakmem knows, and what it looks like; a reader of /proc/PID/mem, of a core file or of a snapshot
 * (hakmem_snapshot_fd) needs nothing else, least of all this library's own headers. docs/INSPECT_ABI.md is the
 * guide, with what a reader may rely on.
 *
 * All numbers are in the target's byte order; all tables lie in its writable data, so that core files have them.
 * Texts are NUL-terminated. */
#ifndef HAKMEM_INSPECT_H
#define HAKMEM_INSPECT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HAKMEM_INSPECT_MAGIC "hakmem-inspect" /* 16 bytes with the NULs behind it */
#define HAKMEM_INSPECT_BYTE_ORDER 0x01020304u

/* A reader refuses another major version. The minor one grows when tables or rows are added. */
#define HAKMEM_INSPECT_MAJOR 1
#define HAKMEM_INSPECT_MINOR 0

#define HAKMEM_INSPECT_NAME_BYTES 32
#define HAKMEM_INSPECT_UNIT_BYTES 16

struct hakmem_inspect_table {
    const void *rows;
    uint32_t count;
    uint32_t row_bytes; /* from one row to the next: at least what this version knows of a row */
};

/* A structure that the heap is made of. */
struct hakmem_inspect_structure {
    char name[HAKMEM_INSPECT_NAME_BYTES];
    uint64_t bytes;
};

enum hakmem_inspect_kind {
    HAKMEM_INSPECT_NUMBER = 1, /* unsigned, of `bytes` bytes */
    HAKMEM_INSPECT_POINTER =
        2, /* to `target`; the target is empty when it is no structure of the table */
    HAKMEM_INSPECT_STRUCTURE = 3 /* `target`, in place */
};

/* A field of a structure: `count` elements of `bytes` each, one after another. */
struct hakmem_inspect_field {
    char structure[HAKMEM_INSPECT_NAME_BYTES];
    char name[HAKMEM_INSPECT_NAME_BYTES];
    char target[HAKMEM_INSPECT_NAME_BYTES];
    char unit[HAKMEM_INSPECT_UNIT_BYTES]; /* of a number; empty: a plain number */
    uint32_t offset;
    uint32_t bytes;
    uint32_t count;
    uint32_t kind; /* enum hakmem_inspect_kind */
};

/* A number that the layout depends on, or the name of one: "page_shift", "run_kind_slab". */
struct hakmem_inspect_constant {
    char name[HAKMEM_INSPECT_NAME_BYTES];
    uint64_t value;
};

/* An object from which everything else is reached: `count` elements of `bytes` each. */
struct hakmem_inspect_global {
    char name[HAKMEM_INSPECT_NAME_BYTES];
    char target[HAKMEM_INSPECT_NAME_BYTES]; /* as of a field */
    const void *address;
    uint32_t bytes;
    uint32_t count;
    uint32_t kind; /* enum hakmem_inspect_kind */
    uint32_t reserved;
};

enum hakmem_inspect_option_kind {
    HAKMEM_INSPECT_OPTION_BOOL,
    HAKMEM_INSPECT_OPTION_UINT,
    HAKMEM_INSPECT_OPTION_BYTES,
    HAKMEM_INSPECT_OPTION_MS,
    HAKMEM_INSPECT_OPTION_ENUM,  /* its values are in the table of choices */
    HAKMEM_INSPECT_OPTION_STRING /* a pointer to NUL-terminated text */
};

/* An option. Its value is 8 bytes at `offset` of the global "options"; where that came from, the byte with the
 * row's own number of the global "option_origins": a constant "option_origin_...". */
struct hakmem_inspect_option {
    char name[HAKMEM_INSPECT_NAME_BYTES];
    char unit[HAKMEM_INSPECT_UNIT_BYTES];
    uint32_t offset;
    uint32_t kind; /* enum hakmem_inspect_option_kind */
    uint32_t live; /* 1: may change while the process runs */
    uint32_t reserved;
};

/* A value of an option of kind ENUM. */
struct hakmem_inspect_choice {
    char option[HAKMEM_INSPECT_NAME_BYTES];
    char name[HAKMEM_INSPECT_NAME_BYTES];
    uint64_t value;
};

/* A counter: its row's number is its place in the field `value` of the structure "counters". */
struct hakmem_inspect_counter {
    char name[HAKMEM_INSPECT_NAME_BYTES];
    char unit[HAKMEM_INSPECT_UNIT_BYTES];
};

/* A size class: its row's number is its index. */
struct hakmem_inspect_size_class {
    uint32_t block_bytes;
    uint32_t slab_pages;  /* pages of 1 << page_shift bytes */
    uint32_t block_count; /* of one slab */
    uint32_t reserved;
};

/* A kind of event. Kinds that are not `always` are recorded while the global "control" asks for them. */
struct hakmem_inspect_event_kind {
    char name[HAKMEM_INSPECT_NAME_BYTES];
    char a_unit[HAKMEM_INSPECT_UNIT_BYTES]; /* of its first number */
    char b_unit[HAKMEM_INSPECT_UNIT_BYTES]; /* of its second number */
    uint32_t number;
    uint32_t always;
};

struct hakmem_inspect_root {
    char magic[16];
    const void *self; /* where the root is: a copy of these bytes elsewhere is none */
    uint32_t byte_order;
    uint16_t major, minor;
    uint32_t root_bytes;
    uint32_t pointer_bytes;
    char version[HAKMEM_INSPECT_NAME_BYTES]; /* of the library */
    const void
        *elf_header; /* of the file that holds the library: its notes have the build id; or NULL */
    struct hakmem_inspect_table structures, fields, constants, globals, options, choices, counters,
        size_classes, event_kinds;
};

/* The root, at a multiple of 64. For readers inside the process; others look for the magic. */
extern struct hakmem_inspect_root hakmem_inspect_root;

/* ---- Snapshots: a file that hakmem_snapshot_fd writes. A header, then pieces, the last one of kind END. */

#define HAKMEM_SNAPSHOT_MAGIC "hakmem-snapshot" /* 16 bytes with the NUL behind it */
#define HAKMEM_SNAPSHOT_MAJOR 1
#define HAKMEM_SNAPSHOT_MINOR 0

struct hakmem_snapshot_header {
    char magic[16];
    uint32_t byte_order;
    uint16_t major, minor;
    uint32_t header_bytes, piece_bytes; /* of these two structures */
    const void *root;                   /* hakmem_inspect_root, in one of the pieces */
    uint64_t process_id;
    uint64_t taken_ns; /* of the monotonic clock */
};

enum hakmem_snapshot_kind {
    HAKMEM_SNAPSHOT_END = 1, /* bytes is 0, address the number of pieces before; no data */
    HAKMEM_SNAPSHOT_MEMORY,  /* `bytes` of data: what was at `address` */
    HAKMEM_SNAPSHOT_ZEROS,   /* no data: there were `bytes` zeros at `address` */
    HAKMEM_SNAPSHOT_TEXT, /* `bytes` of data: the next part of a text, such as "maps"; address is 0 */
    HAKMEM_SNAPSHOT_LOCKED,      /* memory of a lock, looked at before all other memory */
    HAKMEM_SNAPSHOT_LOCKED_AFTER /* the same lock, after all other memory */
};

struct hakmem_snapshot_piece {
    uint32_t kind; /* enum hakmem_snapshot_kind */
    uint32_t reserved;
    char name[HAKMEM_INSPECT_NAME_BYTES]; /* what it is, for people; of a text, its name */
    const void *address;
    uint64_t bytes;
    /* then the data, if any */
};

#ifdef __cplusplus
}
#endif

#endif
