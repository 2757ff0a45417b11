#include "heap/misuse.h"

#include "base/bits.h"
#include "base/text.h"
#include "config/counters.h"
#include "config/options.h"
#include "heap/guarded_report.h"
#include "heap/huge.h"
#include "heap/slab.h"
#include "os/os.h"
#include "space/arena.h"
#include "space/page_map.h"

static const char *const names[] = {
    [MISUSE_INVALID_FREE] = "invalid free",
    [MISUSE_DOUBLE_FREE] = "double free",
    [MISUSE_INVALID_REALLOC] = "invalid realloc",
    [MISUSE_REALLOC_OF_FREED] = "realloc of a freed block",
    [MISUSE_INVALID_USABLE_SIZE] = "invalid malloc_usable_size",
    [MISUSE_USABLE_SIZE_OF_FREED] = "malloc_usable_size of a freed block",
    [MISUSE_SIZE_MISMATCH] = "size mismatch",
    [MISUSE_OVERFLOW] = "buffer overflow",
    [MISUSE_UNDERFLOW] = "buffer underflow",
};

// The name of the same call on the start of a free block.
static enum misuse of_freed(enum misuse what) {
    switch (what) {
    case MISUSE_INVALID_FREE:
        return MISUSE_DOUBLE_FREE;
    case MISUSE_INVALID_REALLOC:
        return MISUSE_REALLOC_OF_FREED;
    case MISUSE_INVALID_USABLE_SIZE:
        return MISUSE_USABLE_SIZE_OF_FREED;
    default:
        return what;
    }
}

static void print_guarded_stacks(uintptr_t address) {
    const struct guarded_slot *slot = guarded_nearest(address);
    if (slot == NULL) {
        return;
    }
    struct stack stack;
    os_stack_capture(&stack);
    guarded_print_stack(2, "noticed", &stack);
    guarded_print_stacks(2, slot);
}

static enum misuse describe_guarded(struct text *text, enum misuse what, uintptr_t address) {
    const struct guarded_slot *slot = guarded_nearest(address);
    if (slot == NULL) {
        text_string(text, "lies between guarded blocks, where none was yet");
        return what;
    }
    const bool is_change = what == MISUSE_OVERFLOW || what == MISUSE_UNDERFLOW;
    text_string(text, is_change ? "was changed, " : "lies ");
    guarded_describe(text, slot, address);
    return address == slot->start ? of_freed(what) : what;
}

static void finish(enum misuse what, uintptr_t address, const struct text *description) {
    struct text line;
    text_clear(&line);
    text_string(&line, "hakmem: ");
    text_string(&line, names[what]);
    text_string(&line, ": ");
    text_hex(&line, address);
    text_string(&line, " ");
    text_bytes(&line, description->bytes, description->count);
    text_string(&line, "\n");
    text_flush(&line, 2);
    print_guarded_stacks(address);
    count_event(COUNTER_misuses, 1);
    if (option_live(abort)) {
        os_abort();
    }
}

static void describe_inside(struct text *text, uintptr_t distance, const char *kind, size_t bytes,
                            uintptr_t start) {
    text_string(text, "lies ");
    text_unsigned(text, distance);
    text_string(text, " bytes inside the ");
    if (kind == NULL) {
        text_unsigned(text, bytes);
        text_string(text, "-byte block at ");
        text_hex(text, start);
    } else {
        text_string(text, kind);
        text_string(text, " block at ");
        text_hex(text, start);
        text_string(text, " of ");
        text_unsigned(text, bytes);
        text_string(text, " bytes");
    }
}

// `line` is one of /proc/self/maps: "start-end perms offset device inode   path".
static void describe_mapping_line(struct text *text, const char *line) {
    const char *field[6] = {line};
    size_t count = 1;
    for (const char *c = line; *c != '\0' && count < ARRAY_COUNT(field); c++) {
        if (*c == ' ' && c[1] != ' ') {
            field[count++] = c + 1;
        }
    }
    text_string(text, "is not from this heap (it lies in ");
    if (count == ARRAY_COUNT(field) && *field[5] != '\0') {
        text_string(text, field[5]);
    } else {
        text_string(text, "[anon]");
    }
    if (count > 1) {
        text_string(text, " ");
        text_bytes(text, field[1], 4);
    }
    text_string(text, ")");
}

static void describe_foreign(struct text *text, uintptr_t address) {
    char line[512];
    if (os_describe_mapping(address, line, sizeof line)) {
        describe_mapping_line(text, line);
    } else {
        text_string(text, "is not from this heap (nothing is mapped there)");
    }
}

static enum misuse describe_slab(struct text *text, enum misuse what, const struct run *slab,
                                 uintptr_t address) {
    const size_t block_bytes = size_classes[slab->class_index].block_bytes;
    const uintptr_t offset = address - slab->start;
    const uintptr_t index = offset / block_bytes;
    if (index >= slab->block_count) {
        text_string(text, "lies in a slab's tail, where no block is");
        return what;
    }
    const uintptr_t start = slab->start + index * block_bytes;
    if (address != start) {
        describe_inside(text, address - start, NULL, block_bytes, start);
        return what;
    }
    const bool never_used = index >= slab->fresh_index && slab_holds(slab, (unsigned)index);
    text_string(text, never_used ? "is a block never handed out, of " : "is a free block of ");
    text_unsigned(text, block_bytes);
    text_string(text, " bytes");
    return never_used ? what : of_freed(what);
}

// The run that last covered a page that is in none now, or NULL: descriptors keep what they were.
static const struct run *former_run(const struct superslab *superslab, uintptr_t address) {
    const unsigned page = (unsigned)((address >> PAGE_SHIFT) % SUPERSLAB_PAGES);
    for (unsigned place = page + 1; place-- > 0;) {
        const struct run *run = &superslab->runs[place];
        if (run->start == superslab->start + place * PAGE_BYTES) {
            return run->page_count > page - place ? run : NULL;
        }
    }
    return NULL;
}

static uint32_t large_bytes(const struct run *run) {
    return atomic_load_relaxed(&((struct run *)(uintptr_t)run)->large_bytes);
}

static enum misuse describe_former(struct text *text, enum misuse what, const struct run *run,
                                   uintptr_t address) {
    if (run != NULL && large_bytes(run) == 0) {
        const size_t block_bytes = size_classes[run->class_index].block_bytes;
        if ((address - run->start) % block_bytes == 0) {
            text_string(text, "is a free block of ");
            text_unsigned(text, block_bytes);
            text_string(text, " bytes");
            return of_freed(what);
        }
    } else if (run != NULL && run->start == address) {
        text_string(text, "is the start of a freed large block");
        return of_freed(what);
    }
    text_string(text, "lies in free heap space");
    return what;
}

static enum misuse describe_run(struct text *text, enum misuse what, uintptr_t address,
                                const struct superslab *superslab) {
    struct run *run = arena_find(address);
    if (run == NULL || address - run->start >= run->page_count * PAGE_BYTES) {
        return describe_former(text, what, former_run(superslab, address), address);
    }
    if (atomic_load_relaxed(&run->kind) == RUN_SLAB) {
        return describe_slab(text, what, run, address);
    }
    if (address == run->start) {
        text_string(text, "is the start of a freed large block");
        return of_freed(what);
    }
    describe_inside(text, address - run->start, "large", large_bytes(run), run->start);
    return what;
}

void misuse_report(enum misuse what, uintptr_t address) {
    struct text description;
    text_clear(&description);
    const struct huge *huge;
    if (address >> ADDRESS_BITS != 0) {
        text_string(&description, "is above the 47-bit address space");
    } else if (guarded_contains(address)) {
        what = describe_guarded(&description, what, address);
    } else if ((huge = huge_find(address)) != NULL) {
        describe_inside(&description, address - huge->start, "large", huge->usable_bytes,
                        huge->start);
    } else if (huge_was_freed(address)) {
        text_string(&description, "is the start of a freed large block");
        what = of_freed(what);
    } else {
        const struct superslab *superslab = page_map_superslab(address);
        if (superslab != NULL) {
            what = describe_run(&description, what, address, superslab);
        } else {
            describe_foreign(&description, address);
        }
    }
    finish(what, address, &description);
}

void misuse_report_block(enum misuse what, const struct run *slab, unsigned index) {
    const size_t block_bytes = size_classes[slab->class_index].block_bytes;
    struct text description;
    text_clear(&description);
    text_string(&description, "is a free block of ");
    text_unsigned(&description, block_bytes);
    text_string(&description, " bytes");
    finish(what, slab->start + index * block_bytes, &description);
}

void misuse_report_freed(enum misuse what, const struct run *slab, unsigned index) {
    misuse_report_block(of_freed(what), slab, index);
}

void misuse_report_size(uintptr_t address, size_t block_bytes, size_t claimed_bytes) {
    struct text description;
    text_clear(&description);
    text_string(&description, "is a block of ");
    text_unsigned(&description, block_bytes);
    text_string(&description, " bytes, not of ");
    text_unsigned(&description, claimed_bytes);
    finish(MISUSE_SIZE_MISMATCH, address, &description);
}
