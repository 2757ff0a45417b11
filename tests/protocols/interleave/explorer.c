#include "explorer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum { THREADS = 4, FIELDS = 24, STORES = 48, PIECES = 8, REGIONS = 16, DEPTH = 4096 };
enum { STACK_BYTES = 65536 };

// The oldest store of each field that may still be read, and how far each thread is known.
struct view {
    uint8_t store[FIELDS];
    uint8_t clock[THREADS];
};

struct store {
    uint64_t value;
    struct view view;
};

struct field {
    void *address;
    size_t bytes;
    unsigned count;
    struct store stores[STORES];
};

struct thread {
    ucontext_t context;
    struct view view;
    uint64_t history;  // of the values it read
    unsigned steps;
    bool ended;
    void *awaited;  // or NULL
    size_t awaited_bytes;
    uint64_t awaited_value;
};

struct mark {
    bool set;
    uint8_t thread, clock;
};

static struct {
    const struct program *program;
    const struct weakening *weakening;
    struct field fields[FIELDS];
    unsigned field_count;
    struct thread threads[THREADS];
    struct mark pieces[PIECES];
    struct {
        char *start;
        size_t bytes;
        struct mark mark;
    } regions[REGIONS];
    unsigned region_count;
    struct {
        void *start;
        size_t bytes;
    } memory[REGIONS];
    unsigned memory_count;
    bool running;
    unsigned current;
    ucontext_t scheduler;
    // The choices of this course of events, and how many there were at each.
    struct {
        uint16_t taken, count;
    } choices[DEPTH];
    unsigned depth, replayed;
    const char *failure;
    // States seen: an open-addressing table of hashes.
    uint64_t *seen;
    uint64_t seen_slots, states;
} explorer;

static char stacks[THREADS][STACK_BYTES] __attribute__((aligned(64)));

static uint64_t mix(uint64_t hash, const void *bytes, size_t count) {
    const unsigned char *at = bytes;
    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    }
    return hash ^ hash >> 29;
}

void explorer_fail(const char *what) {
    if (explorer.failure == NULL) {
        explorer.failure = what;
    }
}

static unsigned choose(unsigned count) {
    if (count <= 1) {
        return 0;
    }
    if (explorer.depth == DEPTH) {
        fputs("explorer: too deep\n", stderr);
        abort();
    }
    if (explorer.depth >= explorer.replayed) {
        explorer.choices[explorer.depth].taken = 0;
        explorer.choices[explorer.depth].count = (uint16_t)count;
    }
    return explorer.choices[explorer.depth++].taken;
}

// ---- Memory ----

static uint64_t read_bytes(const void *field, size_t bytes) {
    uint64_t value = 0;
    memcpy(&value, field, bytes);
    return value;
}

// NULL for a field that one thread at a time accesses.
static struct field *shared(void *address, size_t bytes) {
    if (!explorer.running) {
        return NULL;
    }
    for (unsigned i = 0; i < explorer.field_count; i++) {
        if (explorer.fields[i].address == address) {
            return &explorer.fields[i];
        }
    }
    if (!explorer.program->shares_all) {
        return NULL;
    }
    explorer_share(address, bytes);
    return &explorer.fields[explorer.field_count - 1];
}

static struct thread *self(void) {
    return &explorer.threads[explorer.current];
}

static void join(struct view *view, const struct view *other) {
    for (unsigned i = 0; i < FIELDS; i++) {
        view->store[i] = view->store[i] > other->store[i] ? view->store[i] : other->store[i];
    }
    for (unsigned i = 0; i < THREADS; i++) {
        view->clock[i] = view->clock[i] > other->clock[i] ? view->clock[i] : other->clock[i];
    }
}

static int effective(const char *name, int order) {
    const struct weakening *weakening = explorer.weakening;
    return weakening != NULL && strstr(name, weakening->operand) != NULL ? order & ~weakening->order
                                                                         : order;
}

// Lets any thread go on, this one included.
static void pause_here(void) {
    swapcontext(&self()->context, &explorer.scheduler);
    self()->view.clock[explorer.current]++;
}

static bool in_view(const struct mark *mark) {
    return !mark->set || self()->view.clock[mark->thread] >= mark->clock;
}

static struct mark here(void) {
    return (struct mark){true, (uint8_t)explorer.current, self()->view.clock[explorer.current]};
}

static void note_read(struct field *field, unsigned index, int order) {
    struct thread *thread = self();
    const struct store *store = &field->stores[index];
    thread->view.store[field - explorer.fields] = (uint8_t)index;
    if (order & ACQUIRE) {
        join(&thread->view, &store->view);
    }
    thread->history = mix(thread->history, &store->value, sizeof store->value);
    for (unsigned i = 0; i < explorer.region_count; i++) {
        const uintptr_t distance = (uintptr_t)store->value - (uintptr_t)explorer.regions[i].start;
        if (distance < explorer.regions[i].bytes && !in_view(&explorer.regions[i].mark)) {
            explorer_fail("a pointer was read before what it points to");
        }
    }
}

static void add_store(struct field *field, uint64_t value, int order, const struct view *former) {
    struct thread *thread = self();
    const unsigned number = (unsigned)(field - explorer.fields);
    if (field->count == STORES) {
        fputs("explorer: too many stores\n", stderr);
        abort();
    }
    struct store *store = &field->stores[field->count];
    thread->view.store[number] = (uint8_t)field->count++;
    *store = (struct store){.value = value};
    if (order & RELEASE) {
        store->view = thread->view;
    }
    store->view.store[number] = thread->view.store[number];
    if (former != NULL) {
        join(&store->view, former);
    }
    memcpy(field->address, &value, field->bytes);
}

uint64_t step_load(const char *name, void *address, size_t bytes, int order) {
    struct field *field = shared(address, bytes);
    if (field == NULL) {
        return read_bytes(address, bytes);
    }
    pause_here();
    const unsigned oldest = self()->view.store[field - explorer.fields];
    // The newest first.
    const unsigned index = field->count - 1 - choose(field->count - oldest);
    note_read(field, index, effective(name, order));
    return field->stores[index].value;
}

void step_store(const char *name, void *address, size_t bytes, uint64_t value, int order) {
    struct field *field = shared(address, bytes);
    if (field == NULL) {
        memcpy(address, &value, bytes);
        return;
    }
    pause_here();
    add_store(field, value, effective(name, order), NULL);
}

static uint64_t applied(enum step_operation operation, uint64_t before, uint64_t value) {
    return operation == STEP_EXCHANGE ? value
           : operation == STEP_OR     ? before | value
                                      : before + value;
}

uint64_t step_update(const char *name, void *address, size_t bytes, enum step_operation operation,
                     uint64_t value, int order) {
    struct field *field = shared(address, bytes);
    if (field == NULL) {
        const uint64_t before = read_bytes(address, bytes);
        value = applied(operation, before, value);
        memcpy(address, &value, bytes);
        return before;
    }
    pause_here();
    order = effective(name, order);
    const unsigned last = field->count - 1;
    const uint64_t before = field->stores[last].value;
    note_read(field, last, order);
    add_store(field, applied(operation, before, value), order, &field->stores[last].view);
    return before;
}

bool step_cas(const char *name, void *address, size_t bytes, void *expected, uint64_t desired,
              int order) {
    struct field *field = shared(address, bytes);
    if (field != NULL) {
        pause_here();
    }
    const unsigned last = field == NULL ? 0 : field->count - 1;
    const uint64_t before = field == NULL ? read_bytes(address, bytes) : field->stores[last].value;
    const bool same = before == read_bytes(expected, bytes);
    if (field == NULL) {
        memcpy(same ? address : expected, same ? &desired : &before, bytes);
        return same;
    }
    order = effective(name, order);
    note_read(field, last, same ? order : RELAXED);
    if (same) {
        add_store(field, desired, order, &field->stores[last].view);
    } else {
        memcpy(expected, &before, bytes);
    }
    return same;
}

void explorer_share(void *address, size_t bytes) {
    if (explorer.field_count == FIELDS) {
        fputs("explorer: too many fields\n", stderr);
        abort();
    }
    struct field *field = &explorer.fields[explorer.field_count++];
    *field = (struct field){.address = address, .bytes = bytes, .count = 1};
    field->stores[0].value = read_bytes(address, bytes);
}

void explorer_memory(void *start, size_t bytes) {
    explorer.memory[explorer.memory_count].start = start;
    explorer.memory[explorer.memory_count++].bytes = bytes;
}

void explorer_fresh(void *start, size_t bytes) {
    if (explorer.running) {
        explorer.regions[explorer.region_count].start = start;
        explorer.regions[explorer.region_count].bytes = bytes;
        // The next step of this thread is after all it writes there until then.
        explorer.regions[explorer.region_count++].mark = here();
    }
}

void explorer_write(unsigned piece) {
    if (!in_view(&explorer.pieces[piece])) {
        explorer_fail("two threads wrote a block without an order between them");
    }
    explorer.pieces[piece] = here();
}

void explorer_wait(void *address, size_t bytes, uint64_t value) {
    self()->awaited = address;
    self()->awaited_bytes = bytes;
    self()->awaited_value = value;
}

unsigned explorer_choose(unsigned count) {
    const unsigned chosen = choose(count);
    self()->history = mix(self()->history, &chosen, sizeof chosen);
    return chosen;
}

uintptr_t explorer_thread(void) {
    return (explorer.current + 1) << 6;
}

// ---- Search ----

static void run_thread(void) {
    explorer.program->threads[explorer.current]();
    self()->ended = true;
    swapcontext(&self()->context, &explorer.scheduler);
}

static void start_threads(void) {
    for (unsigned i = 0; i < explorer.program->thread_count; i++) {
        struct thread *thread = &explorer.threads[i];
        memset(thread, 0, sizeof *thread);
        thread->view.clock[i] = 1;  // of the others, nobody knows anything
        getcontext(&thread->context);
        thread->context.uc_stack.ss_sp = stacks[i];
        thread->context.uc_stack.ss_size = STACK_BYTES;
        makecontext(&thread->context, run_thread, 0);
    }
}

// False when the state was seen before.
static bool is_new_state(void) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (unsigned i = 0; i < explorer.field_count; i++) {
        const struct field *field = &explorer.fields[i];
        hash = mix(hash, &field->count, sizeof field->count);
        hash = mix(hash, field->stores, field->count * sizeof field->stores[0]);
    }
    for (unsigned i = 0; i < explorer.program->thread_count; i++) {
        const struct thread *thread = &explorer.threads[i];
        hash = mix(hash, &thread->view, sizeof thread->view);
        hash = mix(hash, &thread->history, sizeof thread->history);
        hash = mix(hash, &thread->steps, sizeof thread->steps);
    }
    for (unsigned i = 0; i < explorer.memory_count; i++) {
        hash = mix(hash, explorer.memory[i].start, explorer.memory[i].bytes);
    }
    hash = mix(hash, explorer.pieces, sizeof explorer.pieces) | 1;
    uint64_t slot = hash % explorer.seen_slots;
    while (explorer.seen[slot] != 0) {
        if (explorer.seen[slot] == hash) {
            return false;
        }
        slot = (slot + 1) % explorer.seen_slots;
    }
    explorer.seen[slot] = hash;
    if (++explorer.states > explorer.seen_slots / 2) {
        fputs("explorer: too many states\n", stderr);
        abort();
    }
    return true;
}

static unsigned enabled_threads(unsigned *enabled) {
    unsigned count = 0;
    for (unsigned i = 0; i < explorer.program->thread_count; i++) {
        struct thread *thread = &explorer.threads[i];
        if (thread->awaited != NULL &&
            read_bytes(thread->awaited, thread->awaited_bytes) == thread->awaited_value) {
            thread->awaited = NULL;
        }
        if (!thread->ended && thread->awaited == NULL) {
            enabled[count++] = i;
        }
    }
    return count;
}

static void run_once(void) {
    // What the last course of events left behind in the program's own variables.
    for (unsigned i = 0; i < explorer.field_count; i++) {
        struct field *field = &explorer.fields[i];
        memcpy(field->address, &field->stores[0].value, field->bytes);
    }
    explorer.field_count = explorer.region_count = explorer.memory_count = 0;
    memset(explorer.pieces, 0, sizeof explorer.pieces);
    explorer.depth = 0;
    explorer.running = false;
    explorer.program->begin();
    start_threads();
    explorer.running = true;
    for (;;) {
        unsigned enabled[THREADS];
        const unsigned count = enabled_threads(enabled);
        if (count == 0 || explorer.failure != NULL) {
            break;
        }
        if (explorer.depth >= explorer.replayed && !is_new_state()) {
            explorer.running = false;
            return;
        }
        explorer.current = enabled[choose(count)];
        self()->steps++;
        swapcontext(&explorer.scheduler, &self()->context);
    }
    explorer.running = false;
    for (unsigned i = 0; i < explorer.program->thread_count; i++) {
        if (explorer.failure == NULL && !explorer.threads[i].ended) {
            explorer_fail("threads wait for each other");
        }
    }
    if (explorer.failure == NULL) {
        explorer.program->end();
    }
}

// The next course of events; false when there is none.
static bool advance(void) {
    while (explorer.depth > 0) {
        const unsigned last = explorer.depth - 1;
        if (explorer.choices[last].taken + 1 < explorer.choices[last].count) {
            explorer.choices[last].taken++;
            explorer.replayed = explorer.depth;
            return true;
        }
        explorer.depth--;
    }
    return false;
}

const char *explorer_search(const struct program *program, const struct weakening *weakening,
                            uint64_t *states) {
    explorer.program = program;
    explorer.weakening = weakening;
    explorer.failure = NULL;
    explorer.replayed = 0;
    explorer.states = 0;
    explorer.seen_slots = UINT64_C(1) << 23;
    explorer.seen = calloc(explorer.seen_slots, sizeof *explorer.seen);
    do {
        run_once();
    } while (explorer.failure == NULL && advance());
    free(explorer.seen);
    *states = explorer.states;
    return explorer.failure;
}
