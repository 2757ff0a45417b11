#include "heap/misuse.h"

#include "base/bits.h"
#include "base/text.h"
#include "config/counters.h"
#include "config/options.h"
#include "heap/guarded_report.h"
#include "heap/huge.h"
#include "heap/slab.h"
#include "os/lock.h"
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
    [MISUSE_WRITE_AFTER_FREE] = "write after free",
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

enum block_holder (*misuse_holder)(const struct run *slab, uintptr_t start);

#define EXPECTED_LIVE "; expected the start of a live block"

// What a kind wants instead. MISUSE_SIZE_MISMATCH says so itself.
static const char *expectation(enum misuse what) {
    switch (what) {
    case MISUSE_OVERFLOW:
    case MISUSE_UNDERFLOW:
        return "; expected no write outside the block";
    case MISUSE_WRITE_AFTER_FREE:
        return "; expected zero, as since its free";
    default:
        return EXPECTED_LIVE;
    }
}

static void finish(enum misuse what, uintptr_t address, const struct text *description) {
    // A handler of SIGABRT allocates on top of the flush that noticed the first misuse: it may meet blocks
    // that are half way back, which are no mistakes of the program.
    if (unlikely(lock_is_aborting())) {
        return;
    }
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

// Where an address is in a block of `bytes`: "is the start of a ", "lies 16 bytes inside the ", or, in
// its slack, "was changed, 1 bytes behind the end of the ".
static void describe_offset(struct text *text, const char *lies, uintptr_t offset, size_t bytes) {
    if (offset == 0) {
        text_string(text, "is the start of a ");
    } else {
        text_string(text, lies);
        text_unsigned(text, offset < bytes ? offset : offset - bytes);
        text_string(text, offset < bytes ? " bytes inside the " : " bytes behind the end of the ");
    }
}

static void describe_start(struct text *text, uintptr_t offset, uintptr_t start) {
    if (offset != 0) {
        text_string(text, " at ");
        text_hex(text, start);
    }
}

static void describe_class(struct text *text, uint64_t class_index, size_t bytes) {
    text_unsigned(text, bytes);
    text_string(text, "-byte block");
    text_string(text, " (class ");
    text_unsigned(text, class_index);
    text_string(text, ")");
}

// `bytes` of the block at `start` are the program's to use.
struct small {
    uint64_t class_index;
    uintptr_t start;
    size_t bytes;
};

static struct small small_block(const struct run *slab, unsigned index) {
    // Nothing is recorded of a block that was never handed out, nor of one the slab has not.
    const size_t usable_bytes = index < slab->block_count ? slab_usable_bytes(slab, index) : 0;
    return (struct small){
        .class_index = slab->class_index,
        .start = slab_block(slab, index),
        .bytes = usable_bytes != 0 ? usable_bytes : size_classes[slab->class_index].block_bytes,
    };
}

static void describe_small(struct text *text, const struct small *block, const char *lies,
                           uintptr_t offset, const char *state) {
    describe_offset(text, lies, offset, block->bytes);
    describe_class(text, block->class_index, block->bytes);
    describe_start(text, offset, block->start);
    text_string(text, ", ");
    text_string(text, state);
}

static void describe_big(struct text *text, const char *kind, size_t bytes, uintptr_t offset,
                         uintptr_t start, const char *state) {
    describe_offset(text, "lies ", offset, bytes);
    text_string(text, kind);
    text_string(text, " block of ");
    text_unsigned(text, bytes);
    text_string(text, " bytes");
    describe_start(text, offset, start);
    text_string(text, ", ");
    text_string(text, state);
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
    switch (os_describe_mapping(address, line, sizeof line)) {
    case OS_MAPPING_FOUND:
        describe_mapping_line(text, line);
        break;
    case OS_MAPPING_NONE:
        text_string(text, "is not from this heap (nothing is mapped there)");
        break;
    default:
        text_string(text, "is not from this heap (what is mapped there is not known)");
        break;
    }
}

// Of a slab that ended meanwhile: the one that is here now may have fewer blocks.
static bool is_of_former_slab(const struct run *slab, unsigned index) {
    return index >= slab->block_count;
}

static bool never_handed_out(const struct run *slab, unsigned index) {
    // In random order others than the first were handed out as well; where requests are noted those tell.
    return !is_of_former_slab(slab, index) && slab_holds(slab, index) &&
           (index >= slab->fresh_index ||
            (options.slack_check != 0 && slab_usable_bytes(slab, index) == 0));
}

enum block_state {
    BLOCK_NEVER_OUT,
    BLOCK_FREE,
    BLOCK_LIVE,
    BLOCK_CACHED,
    BLOCK_QUARANTINED,
    BLOCK_LIVE_OR_CACHED,
};

static const char *const states[] = {
    [BLOCK_NEVER_OUT] = "never handed out",
    [BLOCK_FREE] = "free",
    [BLOCK_LIVE] = "live",
    [BLOCK_CACHED] = "cached",
    [BLOCK_QUARANTINED] = "quarantined",
    [BLOCK_LIVE_OR_CACHED] = "live or cached by another thread",
};

static enum block_state state_of(const struct run *slab, unsigned index) {
    if (is_of_former_slab(slab, index) || slab_is_free(slab, index)) {
        return never_handed_out(slab, index) ? BLOCK_NEVER_OUT : BLOCK_FREE;
    }
    switch (misuse_holder == NULL ? HOLDER_UNKNOWN : misuse_holder(slab, slab_block(slab, index))) {
    case HOLDER_PROGRAM:
        return BLOCK_LIVE;
    case HOLDER_CACHE:
        return BLOCK_CACHED;
    case HOLDER_QUARANTINE:
        return BLOCK_QUARANTINED;
    default:
        return BLOCK_LIVE_OR_CACHED;
    }
}

static enum misuse describe_slab(struct text *text, enum misuse what, const struct run *slab,
                                 uintptr_t address) {
    const uintptr_t offset = address - slab->start;
    const unsigned index = (unsigned)(offset / size_classes[slab->class_index].block_bytes);
    if (index >= slab->block_count) {
        text_string(text, "lies where no block is, in the tail of a slab; its last is a ");
        describe_class(text, slab->class_index, size_classes[slab->class_index].block_bytes);
        return what;
    }
    const struct small block = small_block(slab, index);
    const bool freed = slab_holds(slab, index) && !never_handed_out(slab, index);
    describe_small(text, &block, what == MISUSE_OVERFLOW ? "was changed, " : "lies ",
                   address - block.start, states[state_of(slab, index)]);
    return address == block.start && freed ? of_freed(what) : what;
}

// The run that last covered a page that is in none now, or NULL: descriptors keep what they were.
static const struct run *former_run(const struct superslab *superslab, uintptr_t address) {
    const unsigned page = (unsigned)((address >> PAGE_SHIFT) % SUPERSLAB_PAGES);
    for (unsigned place = page + 1; place-- > 0;) {
        const struct run *run = superslab_run(superslab, place);
        if (run != NULL && run->start == whole_load(&superslab->start) + place * PAGE_BYTES) {
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
            const struct small block = {run->class_index, address, block_bytes};
            describe_small(text, &block, "lies ", 0, "free");
            return of_freed(what);
        }
    } else if (run != NULL && run->start == address) {
        describe_big(text, "large", large_bytes(run), 0, address, "free");
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
    // Between the moment of a free and that of the run's end only the entry tells.
    const bool live = page_entry_kind(page_map_get(run->start)) != PAGE_KIND_NONE;
    describe_big(text, "large", large_bytes(run), address - run->start, run->start,
                 live ? "live" : "free");
    return address == run->start && !live ? of_freed(what) : what;
}

static enum misuse describe(struct text *text, enum misuse what, uintptr_t address) {
    const struct huge *huge;
    size_t freed_bytes;
    if (address >> ADDRESS_BITS != 0) {
        text_string(text, "is above the ");
        text_unsigned(text, ADDRESS_BITS);
        text_string(text, "-bit address space");
    } else if (guarded_contains(address)) {
        return describe_guarded(text, what, address);
    } else if ((huge = huge_find(address)) != NULL) {
        describe_big(text, "huge", huge->usable_bytes, address - huge->start, huge->start, "live");
    } else if ((freed_bytes = huge_freed_bytes(address)) != 0) {
        describe_big(text, "huge", freed_bytes, 0, address, "free");
        return of_freed(what);
    } else {
        const struct superslab *superslab = page_map_superslab(address);
        if (superslab != NULL) {
            return describe_run(text, what, address, superslab);
        }
        describe_foreign(text, address);
    }
    return what;
}

void misuse_report(enum misuse what, uintptr_t address) {
    struct text description;
    text_clear(&description);
    what = describe(&description, what, address);
    text_string(&description, expectation(what));
    finish(what, address, &description);
}

void misuse_report_freed(enum misuse what, const struct run *slab, unsigned index) {
    const struct small block = small_block(slab, index);
    const enum block_state state = state_of(slab, index);
    struct text description;
    text_clear(&description);
    // Between a magazine and the bitmaps a block is in neither.
    const bool between = state == BLOCK_LIVE || state == BLOCK_LIVE_OR_CACHED;
    describe_small(&description, &block, "lies ", 0, states[between ? BLOCK_FREE : state]);
    text_string(&description, EXPECTED_LIVE);
    finish(never_handed_out(slab, index) ? what : of_freed(what), block.start, &description);
}

SLOW_PATH void misuse_report_freed_twice(const struct run *slab, unsigned word, uint64_t bits) {
    for (; bits != 0; bits &= bits - 1) {
        misuse_report_freed(MISUSE_INVALID_FREE, slab, word * 64 + bit_lowest(bits));
    }
}

void misuse_report_size(uintptr_t address, size_t block_bytes, size_t claimed_bytes) {
    struct text description;
    text_clear(&description);
    describe(&description, MISUSE_SIZE_MISMATCH, address);
    text_string(&description, "; expected a size that malloc serves with ");
    text_unsigned(&description, block_bytes);
    text_string(&description, " bytes, not ");
    text_unsigned(&description, claimed_bytes);
    finish(MISUSE_SIZE_MISMATCH, address, &description);
}
