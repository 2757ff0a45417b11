#include "base/check.h"

#include "base/atomic.h"
#include "base/text.h"

// Violations of this round. Relaxed: threads that check at the same time share the limit; pairs with
// nothing.
static _Atomic(uint64_t) seen;

static void print(struct text *line) {
    text_string(line, "\n");
    text_flush(line, 2);
}

void check_begin(void) {
    atomic_store_relaxed(&seen, 0);
}

void check_end(void) {
    const uint64_t count = atomic_load_relaxed(&seen);
    if (count > CHECK_LINES_MAX) {
        struct text line;
        text_clear(&line);
        text_string(&line, "hakmem: check: and ");
        text_unsigned(&line, count - CHECK_LINES_MAX);
        text_string(&line, " more");
        print(&line);
    }
}

// Counts and numbers in tens; bitmaps and addresses, which are long, are easier to read in hex.
static void add_value(struct text *line, uint64_t value) {
    if (value < UINT64_C(1) << 32) {
        text_unsigned(line, value);
    } else {
        text_hex(line, value);
    }
}

SLOW_PATH void check_violated(struct check *check, const char *invariant, uint64_t a, uint64_t b) {
    check->violations++;
    if (atomic_add_relaxed(&seen, 1) >= CHECK_LINES_MAX) {
        return;
    }
    struct text line;
    text_clear(&line);
    text_string(&line, "hakmem: check: ");
    text_string(&line, check->structure);
    text_string(&line, " ");
    add_value(&line, check->where);
    text_string(&line, ": ");
    text_string(&line, invariant);
    text_string(&line, ": ");
    add_value(&line, a);
    text_string(&line, ", ");
    add_value(&line, b);
    print(&line);
}
