#include "os/unwind.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/system_call.h"

// ---- Memory

// The kernel reads a set of signals before it finds that it is asked for nothing that there is: -EFAULT where there is no memory, -EINVAL where
// there is. Every filter of system calls allows it, and emulators know it, unlike process_vm_readv. Another thread that unmaps the memory
// right behind it is not noticed.
static bool is_readable(uintptr_t address) {
    return system_call(SYS_rt_sigprocmask, ~0, (long)address, 0, sizeof(uint64_t), 0, 0) == -EINVAL;
}

#define PAGE_BYTES_MIN 4096

// What lies on a stack may be what a sanitizer forbids to read.
__attribute__((no_sanitize("address"))) static bool read_word(struct unwind *unwind,
                                                              uintptr_t address, uintptr_t *word) {
    if (address % sizeof *word != 0) {
        return false;
    }
    // As large as the smallest page: what follows in it is there as well.
    const uintptr_t page = align_down(address, PAGE_BYTES_MIN);
    if (page == 0 || (page != unwind->known_page && !is_readable(address))) {
        return false;
    }
    unwind->known_page = page;
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): it can be read
    *word = *(const volatile uintptr_t *)address;
    return true;
}

// What signs return addresses uses the bits above those of addresses.
static uintptr_t strip(uintptr_t pc) {
#if defined(__aarch64__)
    return pc & (((uintptr_t)1 << 48) - 1);
#else
    return pc;
#endif
}

// ---- Calls of what is no code

static bool step_out_of_call(struct unwind *unwind) {
    unwind->is_called = false;
    unwind->is_exact = false;
#if defined(__x86_64__)
    const uintptr_t place = unwind->registers[UNWIND_STACK_POINTER];
    if (!read_word(unwind, place, &unwind->pc)) {
        return false;
    }
    unwind->registers[UNWIND_STACK_POINTER] = place + sizeof place;
    unwind->registers[16] = unwind->pc;
#elif defined(__aarch64__)
    unwind->pc = strip(unwind->registers[30]);
#endif
    return unwind->pc != 0;
}

// ---- Handlers of signals

#if defined(__aarch64__)

// What the kernel leaves on the stack for a handler.
struct handler_frame {
    siginfo_t information;
    ucontext_t context;
};

#define INTERRUPTED (offsetof(struct handler_frame, context.uc_mcontext.regs))
// Beside each other: x0 to x30, the stack pointer, pc.
_Static_assert(offsetof(struct handler_frame, context.uc_mcontext.pc) ==
                   INTERRUPTED + UNWIND_REGISTERS * sizeof(uintptr_t),
               "registers");

// mov x8, #139; svc 0: how a handler returns. Since Linux 5.8 the kernel's code for it has no tables, as emulators' has none.
#define RETURN_OF_HANDLER UINT64_C(0xd4000001d2801168)

static bool is_return_of_handler(struct unwind *unwind) {
    const uintptr_t first = align_down(unwind->pc, sizeof(uintptr_t));
    uintptr_t code, rest;
    if (!read_word(unwind, first, &code)) {
        return false;
    }
    if (first == unwind->pc) {
        return code == RETURN_OF_HANDLER;
    }
    return read_word(unwind, first + sizeof code, &rest) &&
           (code >> 32 | rest << 32) == RETURN_OF_HANDLER;
}

// Goes to what the handler interrupted.
static bool step_out_of_handler(struct unwind *unwind) {
    const uintptr_t saved = unwind->registers[UNWIND_STACK_POINTER] + INTERRUPTED;
    uintptr_t registers[UNWIND_REGISTERS];
    for (unsigned i = 0; i < UNWIND_REGISTERS; i++) {
        if (!read_word(unwind, saved + i * sizeof registers[0], &registers[i])) {
            return false;
        }
    }
    if (!read_word(unwind, saved + sizeof registers, &unwind->pc)) {
        return false;
    }
    memcpy(unwind->registers, registers, sizeof registers);
    unwind->is_exact = true;
    return unwind->pc != 0;
}

#endif

// ---- Frame pointers

// Frames further apart than this are none.
#define FRAME_BYTES_MAX ((size_t)1 << 20)

static bool step_without_table(struct unwind *unwind) {
#if defined(__aarch64__)
    if (is_return_of_handler(unwind)) {
        return step_out_of_handler(unwind);
    }
#endif
    unwind->is_exact = false;
    const uintptr_t frame = unwind->registers[UNWIND_FRAME_POINTER];
    uintptr_t caller_frame, caller_pc;
    if (frame - unwind->registers[UNWIND_STACK_POINTER] > FRAME_BYTES_MAX ||
        !read_word(unwind, frame, &caller_frame) ||
        !read_word(unwind, frame + sizeof frame, &caller_pc)) {
        return false;
    }
    unwind->registers[UNWIND_STACK_POINTER] = frame + 2 * sizeof frame;
    unwind->registers[UNWIND_FRAME_POINTER] = caller_frame;
    unwind->pc = strip(caller_pc);
    return caller_pc != 0;
}

// ---- Unwind tables: DWARF 5, section 6.4, as .eh_frame has it (Linux Standard Base 5.0, chapter 10.6)

#if defined(__GLIBC__)

// Of libgcc. In a program with the archive it is the process's: once the program registers tables, it takes a lock, and calls malloc under it.
struct dwarf_eh_bases {
    void *text, *data, *function;
};
const void *_Unwind_Find_FDE(const void *pc, struct dwarf_eh_bases *bases);

static const unsigned char *find_entry_by_libgcc(uintptr_t pc, uintptr_t *function) {
    struct dwarf_eh_bases bases = {NULL, NULL, NULL};
    const unsigned char *entry = _Unwind_Find_FDE((const void *)pc, &bases);
    *function = (uintptr_t)bases.function;
    return entry;
}

#if __GLIBC_PREREQ(2, 35)

// What linkers write beside the tables (.eh_frame_hdr, ibid., 10.6.2): where each function's entry is, by rising addresses.
struct index {
    uint8_t version;
    uint8_t tables_encoding, count_encoding, rows_encoding;
    int32_t tables;
    uint32_t count;
    struct {
        int32_t function, entry;  // from the index on
    } rows[];
};

static bool is_usual(const struct index *index) {
    return index->version == 1 && index->tables_encoding == 0x1b && index->count_encoding == 0x03 &&
           index->rows_encoding == 0x3b && index->count != 0;
}

// The entry of the last function that begins at or before `pc`, or NULL. The loader tells where to look; it waits for nobody and allocates
// nothing.
static const unsigned char *find_entry(uintptr_t pc, uintptr_t *function) {
    struct dl_find_object found;
    if (_dl_find_object((void *)pc, &found) != 0) {
        return NULL;
    }
    const struct index *index = found.dlfo_eh_frame;
    if (index == NULL || !is_usual(index)) {
        // In a static program there is none: it registers its tables with its own libgcc.
        return find_entry_by_libgcc(pc, function);
    }
    const intptr_t place = (intptr_t)(pc - (uintptr_t)index);
    uint32_t low = 0;
    uint32_t high = index->count;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (index->rows[middle].function <= place) {
            low = middle;
        } else {
            high = middle;
        }
    }
    const intptr_t begin = index->rows[low].function;
    *function = (uintptr_t)index + (uintptr_t)begin;
    return begin <= place ? (const unsigned char *)index + index->rows[low].entry : NULL;
}

#else

static const unsigned char *find_entry(uintptr_t pc, uintptr_t *function) {
    return find_entry_by_libgcc(pc, function);
}

#endif

struct cursor {
    const unsigned char *at, *end;
};

// 0 beyond the end.
static uint64_t take(struct cursor *cursor, size_t bytes) {
    uint64_t value = 0;
    if ((size_t)(cursor->end - cursor->at) < bytes) {
        cursor->at = cursor->end;
        return 0;
    }
    memcpy(&value, cursor->at, bytes);
    cursor->at += bytes;
    return value;
}

static inline uint64_t take_byte(struct cursor *cursor) {
    return cursor->at < cursor->end ? *cursor->at++ : 0;
}

// Seven bits a byte, the lowest first; `bits`: how many there were, of which the highest is the sign where there is one.
static uint64_t take_leb(struct cursor *cursor, unsigned *bits) {
    uint64_t value = 0;
    uint64_t byte = 0x80;
    for (*bits = 0; (byte & 0x80) != 0 && *bits < 63; *bits += 7) {
        byte = take_byte(cursor);
        value |= (byte & 0x7f) << *bits;
    }
    return value;
}

static uint64_t take_unsigned(struct cursor *cursor) {
    unsigned bits;
    return take_leb(cursor, &bits);
}

static int64_t take_signed(struct cursor *cursor) {
    unsigned bits;
    const uint64_t value = take_leb(cursor, &bits);
    return (int64_t)(value << (64 - bits)) >> (64 - bits);
}

// A block with its length before it.
static struct cursor take_block(struct cursor *cursor) {
    const uint64_t bytes = take_unsigned(cursor);
    const struct cursor block = {
        cursor->at, cursor->at + least_u64(bytes, (uint64_t)(cursor->end - cursor->at))};
    cursor->at = block.end;
    return block;
}

// How the caller's value of a register is found.
enum rule_kind {
    UNCHANGED,
    UNKNOWN,
    AT_OFFSET,
    IS_OFFSET,
    IN_REGISTER,
    AT_EXPRESSION,
    IS_EXPRESSION
};
struct rule {
    uint8_t kind;  // enum rule_kind
    int32_t
        value;  // offset from the frame's address, register, or where its block lies, from the tables' place
};

// A row of the table: what holds at one instruction. The frame's address (CFA) is a register's value and an offset, or an expression's.
struct row {
    struct rule registers[UNWIND_REGISTERS];
    struct rule frame;
    int64_t frame_offset;
};

#define REMEMBERED_ROWS 4

struct table {
    struct unwind *unwind;
    const unsigned char *place;  // what the blocks of rules count from
    uint64_t code_factor;
    int64_t data_factor;
    uint64_t return_register;
    uint8_t pointer_encoding;
    bool has_augmentation;
    bool is_signal_frame;
    struct row row, initial, remembered[REMEMBERED_ROWS];
    unsigned remembered_count;
};

// Bytes of an encoded address, 0 where it has no fixed length.
static size_t pointer_bytes(uint8_t encoding) {
    switch (encoding & 0x0f) {
    case 0x00:
    case 0x04:
    case 0x0c:
        return 8;
    case 0x02:
    case 0x0a:
        return 2;
    case 0x03:
    case 0x0b:
        return 4;
    default:
        return 0;
    }
}

// What a length of four bytes stands before.
static bool open_entry(const unsigned char *entry, struct cursor *cursor) {
    uint32_t bytes;
    memcpy(&bytes, entry, sizeof bytes);
    cursor->at = entry + sizeof bytes;
    cursor->end = cursor->at + bytes;
    return bytes != 0 && bytes < UINT32_MAX;
}

static bool read_augmentation(struct table *table, const char *letters, struct cursor *cursor) {
    table->has_augmentation = *letters == 'z';
    if (!table->has_augmentation) {
        return *letters == '\0';
    }
    struct cursor data = take_block(cursor);
    for (letters++; *letters != '\0'; letters++) {
        switch (*letters) {
        case 'R':
            table->pointer_encoding = (uint8_t)take_byte(&data);
            break;
        case 'L':
            take_byte(&data);
            break;
        case 'P':
            take(&data, pointer_bytes((uint8_t)take_byte(&data)));
            break;
        case 'S':
            table->is_signal_frame = true;
            break;
        default:
            break;  // of pointers that are signed: nothing belongs to it
        }
    }
    return true;
}

// What several functions have in common (CIE). Leaves its instructions.
static bool read_common(struct table *table, const unsigned char *entry, struct cursor *cursor) {
    if (!open_entry(entry, cursor) || take(cursor, sizeof(uint32_t)) != 0) {
        return false;
    }
    const uint64_t version = take_byte(cursor);
    const char *letters = (const char *)cursor->at;
    cursor->at += strnlen(letters, (size_t)(cursor->end - cursor->at));
    take_byte(cursor);
    table->code_factor = take_unsigned(cursor);
    table->data_factor = take_signed(cursor);
    table->return_register = version == 1 ? take_byte(cursor) : take_unsigned(cursor);
    return (version == 1 || version == 3) && table->return_register < UNWIND_REGISTERS &&
           read_augmentation(table, letters, cursor);
}

static void set_rule(struct table *table, uint64_t index, enum rule_kind kind, int64_t value) {
    if (index < UNWIND_REGISTERS) {
        table->row.registers[index] = (struct rule){(uint8_t)kind, (int32_t)value};
    }
}

static void set_rule_to_block(struct table *table, uint64_t index, enum rule_kind kind,
                              struct cursor *cursor) {
    const unsigned char *length = cursor->at;
    take_block(cursor);
    set_rule(table, index, kind, length - table->place);
}

static void restore_rule(struct table *table, uint64_t index) {
    if (index < UNWIND_REGISTERS) {
        table->row.registers[index] = table->initial.registers[index];
    }
}

static void set_frame(struct table *table, uint64_t index, int64_t offset) {
    table->row.frame = (struct rule){IN_REGISTER, (int32_t)least_u64(index, UNWIND_REGISTERS)};
    table->row.frame_offset = offset;
}

// An instruction with a number of its own. False where it is not known.
static bool obey(struct table *table, unsigned instruction, struct cursor *cursor) {
    uint64_t index;
    const unsigned char *length;
    switch (instruction) {
    case 0x00:  // nop
    case 0x2d:  // the return address is signed: strip() removes that
        return true;
    case 0x05:  // offset_extended
        index = take_unsigned(cursor);
        set_rule(table, index, AT_OFFSET, (int64_t)take_unsigned(cursor) * table->data_factor);
        return true;
    case 0x06:  // restore_extended
        restore_rule(table, take_unsigned(cursor));
        return true;
    case 0x07:  // undefined
        set_rule(table, take_unsigned(cursor), UNKNOWN, 0);
        return true;
    case 0x08:  // same_value
        set_rule(table, take_unsigned(cursor), UNCHANGED, 0);
        return true;
    case 0x09:  // register
        index = take_unsigned(cursor);
        set_rule(table, index, IN_REGISTER, (int64_t)take_unsigned(cursor));
        return true;
    case 0x0a:  // remember_state
        if (table->remembered_count == REMEMBERED_ROWS) {
            return false;
        }
        table->remembered[table->remembered_count++] = table->row;
        return true;
    case 0x0b:  // restore_state
        if (table->remembered_count == 0) {
            return false;
        }
        table->row = table->remembered[--table->remembered_count];
        return true;
    case 0x0c:  // def_cfa
        index = take_unsigned(cursor);
        set_frame(table, index, (int64_t)take_unsigned(cursor));
        return true;
    case 0x0d:  // def_cfa_register
        set_frame(table, take_unsigned(cursor), table->row.frame_offset);
        return true;
    case 0x0e:  // def_cfa_offset
        table->row.frame_offset = (int64_t)take_unsigned(cursor);
        return true;
    case 0x0f:  // def_cfa_expression
        length = cursor->at;
        take_block(cursor);
        table->row.frame = (struct rule){IS_EXPRESSION, (int32_t)(length - table->place)};
        return true;
    case 0x10:  // expression
        set_rule_to_block(table, take_unsigned(cursor), AT_EXPRESSION, cursor);
        return true;
    case 0x11:  // offset_extended_sf
        index = take_unsigned(cursor);
        set_rule(table, index, AT_OFFSET, take_signed(cursor) * table->data_factor);
        return true;
    case 0x12:  // def_cfa_sf
        index = take_unsigned(cursor);
        set_frame(table, index, take_signed(cursor) * table->data_factor);
        return true;
    case 0x13:  // def_cfa_offset_sf
        table->row.frame_offset = take_signed(cursor) * table->data_factor;
        return true;
    case 0x14:  // val_offset
        index = take_unsigned(cursor);
        set_rule(table, index, IS_OFFSET, (int64_t)take_unsigned(cursor) * table->data_factor);
        return true;
    case 0x16:  // val_expression
        set_rule_to_block(table, take_unsigned(cursor), IS_EXPRESSION, cursor);
        return true;
    case 0x2e:  // GNU_args_size
        take_unsigned(cursor);
        return true;
    default:
        return false;
    }
}

// Up to where the row of the instruction `place` bytes behind the function's begin is complete.
static bool run(struct table *table, struct cursor cursor, uint64_t place) {
    uint64_t at = 0;
    while (cursor.at < cursor.end && at <= place) {
        const unsigned instruction = (unsigned)take_byte(&cursor);
        const unsigned low = instruction & 0x3f;
        switch (instruction >> 6) {
        case 1:  // advance_loc
            at += low * table->code_factor;
            break;
        case 2:  // offset
            set_rule(table, low, AT_OFFSET, (int64_t)take_unsigned(&cursor) * table->data_factor);
            break;
        case 3:  // restore
            restore_rule(table, low);
            break;
        default:
            if (low >= 2 && low <= 4) {  // advance_loc1, 2, 4
                at += take(&cursor, (size_t)1 << (low - 2)) * table->code_factor;
            } else if (!obey(table, low, &cursor)) {
                return false;
            }
        }
    }
    return true;
}

// The row of where it is. False where there is no table, or an instruction of it is not known.
static bool find_row(struct unwind *unwind, struct table *table) {
    const uintptr_t pc = unwind->pc - !unwind->is_exact;
    uintptr_t function;
    const unsigned char *entry = find_entry(pc, &function);
    struct cursor cursor, common;
    if (entry == NULL || !open_entry(entry, &cursor)) {
        return false;
    }
    memset(table, 0, offsetof(struct table, initial));
    table->unwind = unwind;
    table->place = entry;
    table->remembered_count = 0;
    // How far the common entry lies before the word that tells it.
    const unsigned char *back = cursor.at;
    if (!read_common(table, back - take(&cursor, sizeof(uint32_t)), &common)) {
        return false;
    }
    const size_t bytes = pointer_bytes(table->pointer_encoding);
    take(&cursor, bytes);  // the function's begin
    const uint64_t function_bytes = take(&cursor, bytes);
    if (table->has_augmentation) {
        take_block(&cursor);
    }
    if (pc - function >= function_bytes || !run(table, common, 0)) {
        return false;
    }
    table->initial = table->row;
    return run(table, cursor, pc - function);
}

#define EXPRESSION_DEPTH 8

// Of a block that begins `place` from the tables' place; `first` is on its stack to begin with. The operations are those of PLTs and of the
// return from a signal's handler.
static bool evaluate(const struct table *table, int32_t place, uintptr_t first, uintptr_t *result) {
    struct cursor all = {table->place + place, table->place + place + 16};
    struct cursor cursor = {all.at, NULL};
    const uint64_t bytes = take_unsigned(&all);
    cursor = (struct cursor){all.at, all.at + bytes};
    uintptr_t stack[EXPRESSION_DEPTH] = {first};
    unsigned top = 0;
    while (cursor.at < cursor.end) {
        const unsigned operation = (unsigned)take_byte(&cursor);
        const bool is_literal = operation >= 0x30 && operation <= 0x4f;
        const bool is_register = operation >= 0x70 && operation < 0x70 + UNWIND_REGISTERS;
        if (is_literal || is_register) {
            if (++top == EXPRESSION_DEPTH) {
                return false;
            }
            stack[top] = is_literal ? operation - 0x30
                                    : table->unwind->registers[operation - 0x70] +
                                          (uintptr_t)take_signed(&cursor);
            continue;
        }
        if (operation == 0x06) {  // deref
            if (!read_word(table->unwind, stack[top], &stack[top])) {
                return false;
            }
            continue;
        }
        if (operation == 0x23) {  // plus_uconst
            stack[top] += take_unsigned(&cursor);
            continue;
        }
        if (top == 0) {
            return false;
        }
        const uintptr_t right = stack[top--];
        switch (operation) {
        case 0x1a:  // and
            stack[top] &= right;
            break;
        case 0x22:  // plus
            stack[top] += right;
            break;
        case 0x24:  // shl
            stack[top] = right < 64 ? stack[top] << right : 0;
            break;
        case 0x2a:  // ge
            stack[top] = (intptr_t)stack[top] >= (intptr_t)right;
            break;
        default:
            return false;
        }
    }
    *result = stack[top];
    return true;
}

static bool find_frame(const struct table *table, uintptr_t *frame) {
    const struct rule *rule = &table->row.frame;
    if (rule->kind == IS_EXPRESSION) {
        return evaluate(table, rule->value, 0, frame);
    }
    if (rule->kind != IN_REGISTER || rule->value >= UNWIND_REGISTERS) {
        return false;
    }
    *frame = table->unwind->registers[rule->value] + (uintptr_t)table->row.frame_offset;
    return true;
}

// The caller's value of a register.
static bool recover(const struct table *table, const struct rule *rule, uintptr_t frame,
                    uintptr_t *value) {
    uintptr_t address;
    switch ((enum rule_kind)rule->kind) {
    case UNCHANGED:
        return true;
    case AT_OFFSET:
        return read_word(table->unwind, frame + (uintptr_t)(intptr_t)rule->value, value);
    case IS_OFFSET:
        *value = frame + (uintptr_t)(intptr_t)rule->value;
        return true;
    case IN_REGISTER:
        *value =
            (uint32_t)rule->value < UNWIND_REGISTERS ? table->unwind->registers[rule->value] : 0;
        return true;
    case AT_EXPRESSION:
        return evaluate(table, rule->value, frame, &address) &&
               read_word(table->unwind, address, value);
    case IS_EXPRESSION:
        return evaluate(table, rule->value, frame, value);
    case UNKNOWN:
    default:
        *value = 0;
        return true;
    }
}

static bool step_by_table(struct unwind *unwind, struct table *table) {
    uintptr_t frame;
    uintptr_t registers[UNWIND_REGISTERS];
    if (!find_frame(table, &frame)) {
        return false;
    }
    memcpy(registers, unwind->registers, sizeof registers);
    registers[UNWIND_STACK_POINTER] = frame;
    for (unsigned i = 0; i < UNWIND_REGISTERS; i++) {
        if (!recover(table, &table->row.registers[i], frame, &registers[i])) {
            return false;
        }
    }
    memcpy(unwind->registers, registers, sizeof registers);
    unwind->pc = strip(registers[table->return_register]);
    unwind->is_exact = table->is_signal_frame;
    return unwind->pc != 0;
}

bool unwind_step(struct unwind *unwind) {
    struct table table;
    if (unwind->is_called) {
        return step_out_of_call(unwind);
    }
    if (find_row(unwind, &table)) {
        return step_by_table(unwind, &table);
    }
    return step_without_table(unwind);
}

#else

bool unwind_step(struct unwind *unwind) {
    return unwind->is_called ? step_out_of_call(unwind) : step_without_table(unwind);
}

#endif

// ---- Where it begins

__attribute__((noinline)) void unwind_here(struct unwind *unwind) {
    memset(unwind, 0, sizeof *unwind);
    uintptr_t *const registers = unwind->registers;
#if defined(__x86_64__)
    __asm__ volatile("leaq 0f(%%rip), %%rax\n\t"
                     "0: movq %%rax, 16*8(%0)\n\t"
                     "movq %%rbx, 3*8(%0)\n\t"
                     "movq %%rbp, 6*8(%0)\n\t"
                     "movq %%rsp, 7*8(%0)\n\t"
                     "movq %%r12, 12*8(%0)\n\t"
                     "movq %%r13, 13*8(%0)\n\t"
                     "movq %%r14, 14*8(%0)\n\t"
                     "movq %%r15, 15*8(%0)"
                     :
                     : "r"(registers)
                     : "rax", "memory");
    unwind->pc = registers[16];
#elif defined(__aarch64__)
    __asm__ volatile("adr x9, .\n\t"
                     "str x9, %0\n\t"
                     "stp x19, x20, [%1, #19*8]\n\t"
                     "stp x21, x22, [%1, #21*8]\n\t"
                     "stp x23, x24, [%1, #23*8]\n\t"
                     "stp x25, x26, [%1, #25*8]\n\t"
                     "stp x27, x28, [%1, #27*8]\n\t"
                     "stp x29, x30, [%1, #29*8]\n\t"
                     "mov x9, sp\n\t"
                     "str x9, [%1, #31*8]"
                     : "=m"(unwind->pc)
                     : "r"(registers)
                     : "x9", "memory");
#endif
    unwind->is_exact = true;
    unwind->known_page = align_down(registers[UNWIND_STACK_POINTER], PAGE_BYTES_MIN);
    // Its own frame goes with it.
    unwind_step(unwind);
}

void unwind_interrupted(struct unwind *unwind, const void *context) {
    const ucontext_t *interrupted = context;
    memset(unwind, 0, sizeof *unwind);
#if defined(__x86_64__)
    static const uint8_t places[UNWIND_REGISTERS] = {
        REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI, REG_RBP, REG_RSP, REG_R8,
        REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP};
    for (unsigned i = 0; i < UNWIND_REGISTERS; i++) {
        unwind->registers[i] = (uintptr_t)interrupted->uc_mcontext.gregs[places[i]];
    }
    unwind->pc = unwind->registers[16];
#elif defined(__aarch64__)
    for (unsigned i = 0; i < UNWIND_STACK_POINTER; i++) {
        unwind->registers[i] = (uintptr_t)interrupted->uc_mcontext.regs[i];
    }
    unwind->registers[UNWIND_STACK_POINTER] = (uintptr_t)interrupted->uc_mcontext.sp;
    unwind->pc = (uintptr_t)interrupted->uc_mcontext.pc;
#endif
    unwind->is_exact = true;
}
