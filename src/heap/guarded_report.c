#include "heap/guarded_report.h"

#include <string.h>

#include "config/counters.h"
#include "config/options.h"
#include "os/fault.h"
#include "os/file.h"

#define FRAMES_SHOWN_MAX 16

// The handler's alternative stack may be small, and only one thread reports at a time.
static struct {
    // Acquire exchange by the thread that reports, release when it is done: the texts are then the next
    // one's.
    _Atomic(uint32_t) busy;
    struct text text;
    struct stack accessed;
} report;

// Of a path that is longer both have the beginning.
static bool is_program(const char *path) {
    char program[MODULE_PATH_MAX];
    const size_t length = os_file_read_link("/proc/self/exe", program, sizeof program - 1);
    return length == strlen(path) && memcmp(path, program, length) == 0;
}

#define TYPE_PLACE 16  // of an ELF file
#define TYPE_FIXED 2   // ET_EXEC

// What offsets in a module count from: in a program that is not position independent from 0, as its file's addresses do.
static uintptr_t origin_of(const struct os_module *module) {
    char header[TYPE_PLACE + 1];
    const bool is_fixed = is_program(module->path) &&
                          os_file_read("/proc/self/exe", header, sizeof header) == sizeof header &&
                          header[TYPE_PLACE] == TYPE_FIXED;
    return is_fixed ? 0 : module->base;
}

static void add_place(struct text *text, uintptr_t address) {
    struct os_module module;
    text_hex(text, address);
    if (os_module_find(address, &module)) {
        text_string(text, " ");
        text_string(text, module.path);
        text_string(text, "+");
        text_hex(text, address - origin_of(&module));
    }
}

// Frames of the allocator itself at the inner end. Where it is linked into the program they cannot be
// told from the program's.
static uint32_t count_own_frames(const struct stack *stack) {
    struct os_module own, module;
    if (!os_module_find((uintptr_t)&count_own_frames, &own) || is_program(own.path)) {
        return 0;
    }
    uint32_t count = 0;
    while (count < stack->count && os_module_find(stack->frames[count], &module) &&
           module.base == own.base) {
        count++;
    }
    return count;
}

static void print_stack(struct text *text, int descriptor, const char *heading,
                        const struct stack *stack) {
    text_clear(text);
    text_string(text, "hakmem:   ");
    text_string(text, heading);
    text_string(text, " by thread ");
    text_unsigned(text, stack->thread);
    text_string(text, "\n");
    text_flush(text, descriptor);
    const uint32_t first = count_own_frames(stack);
    for (uint32_t i = first; i < stack->count && i - first < FRAMES_SHOWN_MAX; i++) {
        text_string(text, "hakmem:     #");
        text_unsigned(text, i - first);
        text_string(text, " ");
        add_place(text, stack->frames[i]);
        text_string(text, "\n");
        text_flush(text, descriptor);
    }
}

static void print_stacks(struct text *text, int descriptor, const struct guarded_slot *slot) {
    print_stack(text, descriptor, "allocated", &slot->allocated);
    if (slot->freed.thread != 0) {
        print_stack(text, descriptor, "freed", &slot->freed);
    }
}

void guarded_print_stack(int descriptor, const char *heading, const struct stack *stack) {
    struct text text;
    print_stack(&text, descriptor, heading, stack);
}

void guarded_print_stacks(int descriptor, const struct guarded_slot *slot) {
    struct text text;
    print_stacks(&text, descriptor, slot);
}

static bool is_live(const struct guarded_slot *slot) {
    return atomic_load_relaxed(&((struct guarded_slot *)(uintptr_t)slot)->state) == GUARDED_LIVE;
}

void guarded_describe(struct text *text, const struct guarded_slot *slot, uintptr_t address) {
    const uintptr_t end = slot->start + slot->bytes;
    const char *where = " bytes inside the ";
    uint64_t distance = address - slot->start;
    if (address < slot->start) {
        where = " bytes before the ";
        distance = slot->start - address;
    } else if (address >= end) {
        where = " bytes behind the end of the ";
        distance = address - end;
    }
    if (address == slot->start) {
        text_string(text, "at the start of the ");
    } else {
        text_unsigned(text, distance);
        text_string(text, where);
    }
    text_string(text, is_live(slot) ? "live " : "freed ");
    text_unsigned(text, slot->bytes);
    text_string(text, "-byte guarded block at ");
    text_hex(text, slot->start);
}

static const char *kind_of(const struct guarded_slot *slot, uintptr_t address) {
    if (!is_live(slot)) {
        return "use after free";
    }
    if (address < slot->start) {
        return "buffer underflow";
    }
    return address >= slot->start + slot->bytes ? "buffer overflow" : "unknown fault";
}

static const char *access_name(enum os_access access) {
    switch (access) {
    case OS_ACCESS_READ:
        return "read of ";
    case OS_ACCESS_WRITE:
        return "write to ";
    case OS_ACCESS_EXECUTE:
        return "call of ";
    default:
        return "access to ";
    }
}

static void print_fault(const struct os_fault *fault, const struct guarded_slot *slot) {
    struct text *text = &report.text;
    text_clear(text);
    text_string(text, "hakmem: ");
    text_string(text, slot == NULL ? "wild access" : kind_of(slot, fault->address));
    text_string(text, ": ");
    text_string(text, access_name(fault->access));
    text_hex(text, fault->address);
    text_string(text, ", ");
    if (slot == NULL) {
        text_string(text, "between guarded blocks, where none was yet");
    } else {
        guarded_describe(text, slot, fault->address);
    }
    text_string(text, "\n");
    text_flush(text, 2);
    os_stack_capture_interrupted(&report.accessed, fault->context,
                                 fault->access == OS_ACCESS_EXECUTE);
    print_stack(text, 2, "accessed", &report.accessed);
    if (slot != NULL) {
        print_stacks(text, 2, slot);
    }
}

static bool report_fault(const struct os_fault *fault) {
    if (!guarded_contains(fault->address)) {
        return false;
    }
    // Another thread's report comes first. This one's instruction runs again, and faults again.
    if (atomic_exchange_acquire(&report.busy, 1) != 0) {
        os_yield();
        return true;
    }
    print_fault(fault, guarded_nearest(fault->address));
    count_event(COUNTER_misuses, 1);
    // What was called is no code: the page opened, the same would come again for ever.
    const bool goes_on = option_live(abort) == 0 && fault->access != OS_ACCESS_EXECUTE &&
                         guarded_open(fault->address);
    // Release: see `busy`.
    atomic_exchange_release(&report.busy, 0);
    return goes_on;
}

void guarded_catch_faults(void) {
    os_fault_catch(report_fault);
}

void guarded_report_fork_child(void) {
    atomic_store_relaxed(&report.busy, 0);
}
