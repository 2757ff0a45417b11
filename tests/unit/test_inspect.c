// What readers outside of the process are told: the heap is walked through the tables alone, as they would, and
// what is found compared with the structures themselves.
#include "isolate.h"

#include <string.h>

#include "api/alloc.h"
#include "base/bits.h"
#include "config/options.h"
#include "control/stats.h"
#include "hakmem_inspect.h"
#include "heap/huge.h"
#include "os/events.h"
#include "space/arena.h"
#include "space/metadata.h"
#include "thread/lifecycle.h"

#define ROOT (&hakmem_inspect_root)

static const char *row_at(const struct hakmem_inspect_table *table, uint32_t index) {
    assert_true(index < table->count);
    return (const char *)table->rows + (size_t)index * table->row_bytes;
}

// The row of a table whose first field is this name.
static const void *row_named(const struct hakmem_inspect_table *table, const char *name) {
    for (uint32_t i = 0; i < table->count; i++) {
        if (strcmp(row_at(table, i), name) == 0) {
            return row_at(table, i);
        }
    }
    fail_msg("no row %s", name);
    return NULL;
}

static uint64_t constant(const char *name) {
    return ((const struct hakmem_inspect_constant *)row_named(&ROOT->constants, name))->value;
}

static size_t bytes_of(const char *structure) {
    const struct hakmem_inspect_structure *row = row_named(&ROOT->structures, structure);
    return row->bytes;
}

static const struct hakmem_inspect_field *field(const char *structure, const char *name) {
    for (uint32_t i = 0; i < ROOT->fields.count; i++) {
        const struct hakmem_inspect_field *row = (const void *)row_at(&ROOT->fields, i);
        if (strcmp(row->structure, structure) == 0 && strcmp(row->name, name) == 0) {
            return row;
        }
    }
    fail_msg("no field %s of %s", name, structure);
    return NULL;
}

static const char *global(const char *name) {
    return ((const struct hakmem_inspect_global *)row_named(&ROOT->globals, name))->address;
}

static uint64_t number(const char *object, const char *structure, const char *name) {
    const struct hakmem_inspect_field *row = field(structure, name);
    uint64_t value = 0;
    assert_int_not_equal(row->kind, HAKMEM_INSPECT_STRUCTURE);
    assert_true(row->bytes <= sizeof value);
    memcpy(&value, object + row->offset, row->bytes);
    return value;
}

static const char *pointer(const char *object, const char *structure, const char *name) {
    assert_int_equal(field(structure, name)->kind, HAKMEM_INSPECT_POINTER);
    return (const char *)number(object, structure, name);
}

static const char *element(const char *object, const char *structure, const char *name,
                           uint32_t index) {
    const struct hakmem_inspect_field *row = field(structure, name);
    assert_true(index < row->count);
    return object + row->offset + (size_t)index * row->bytes;
}

static const char *inside(const char *object, const char *structure, const char *name) {
    return element(object, structure, name, 0);
}

// ---- The tables themselves

static bool is_text(const char *bytes, size_t capacity) {
    return memchr(bytes, '\0', capacity) != NULL;
}

static void root_describes_itself(void **state) {
    (void)state;
    assert_memory_equal(ROOT->magic, "hakmem-inspect\0", 16);
    assert_ptr_equal(ROOT->self, ROOT);
    assert_int_equal((uintptr_t)ROOT % 64, 0);
    assert_int_equal(ROOT->byte_order, HAKMEM_INSPECT_BYTE_ORDER);
    assert_int_equal(ROOT->major, HAKMEM_INSPECT_MAJOR);
    assert_int_equal(ROOT->root_bytes, sizeof *ROOT);
    assert_int_equal(ROOT->pointer_bytes, sizeof(void *));
    assert_memory_equal(ROOT->elf_header, "\177ELF", 4);
}

static bool is_structure(const char *name) {
    for (uint32_t i = 0; i < ROOT->structures.count; i++) {
        if (strcmp(row_at(&ROOT->structures, i), name) == 0) {
            return true;
        }
    }
    return false;
}

static void fields_lie_in_known_structures(void **state) {
    (void)state;
    for (uint32_t i = 0; i < ROOT->fields.count; i++) {
        const struct hakmem_inspect_field *row = (const void *)row_at(&ROOT->fields, i);
        assert_true(is_text(row->structure, sizeof row->structure));
        assert_true(is_text(row->name, sizeof row->name));
        assert_true(is_text(row->target, sizeof row->target));
        assert_true(is_text(row->unit, sizeof row->unit));
        assert_true(row->count > 0);
        assert_true(row->offset + (uint64_t)row->bytes * row->count <= bytes_of(row->structure));
        switch (row->kind) {
        case HAKMEM_INSPECT_NUMBER:
            assert_true(row->bytes <= 8 && is_power_of_two(row->bytes));
            break;
        case HAKMEM_INSPECT_POINTER:
            assert_int_equal(row->bytes, ROOT->pointer_bytes);
            assert_true(row->target[0] == '\0' || is_structure(row->target));
            break;
        default:
            assert_int_equal(row->kind, HAKMEM_INSPECT_STRUCTURE);
            assert_int_equal(row->bytes, bytes_of(row->target));
        }
    }
}

static void no_name_is_cut_or_twice(void **state) {
    (void)state;
    const struct hakmem_inspect_table *tables[] = {&ROOT->structures, &ROOT->constants,
                                                   &ROOT->globals, &ROOT->options, &ROOT->counters};
    for (size_t i = 0; i < ARRAY_COUNT(tables); i++) {
        for (uint32_t j = 0; j < tables[i]->count; j++) {
            assert_true(is_text(row_at(tables[i], j), HAKMEM_INSPECT_NAME_BYTES));
            assert_ptr_equal(row_named(tables[i], row_at(tables[i], j)), row_at(tables[i], j));
        }
    }
}

static void options_show_value_and_origin(void **state) {
    (void)state;
    char *environment[] = {"HAKMEM_PURGE_DELAY_MS=77", NULL};
    lifecycle_start();
    options_load(environment, false);
    const struct hakmem_inspect_option *row = row_named(&ROOT->options, "purge_delay_ms");
    uint64_t value;
    memcpy(&value, global("options") + row->offset, sizeof value);
    assert_int_equal(value, 77);
    assert_int_equal(row->live, 1);
    assert_int_equal(row->kind, HAKMEM_INSPECT_OPTION_MS);
    const size_t index =
        (size_t)((const char *)row - (const char *)ROOT->options.rows) / ROOT->options.row_bytes;
    assert_int_equal((uint8_t)global("option_origins")[index],
                     constant("option_origin_environment"));
    assert_int_equal(ROOT->options.count, OPTION_COUNT);
}

static void size_classes_are_those_in_use(void **state) {
    (void)state;
    assert_int_equal(ROOT->size_classes.count, SIZE_CLASS_COUNT);
    for (uint32_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        const struct hakmem_inspect_size_class *row = (const void *)row_at(&ROOT->size_classes, i);
        assert_int_equal(row->block_bytes, size_classes[i].block_bytes);
        assert_int_equal(row->block_count, size_classes[i].block_count);
        assert_int_equal(row->slab_pages, size_classes[i].slab_pages);
    }
}

// ---- A walk

struct walk {
    uint64_t slabs, free_blocks, large_blocks, large_bytes, huge_blocks, cached_blocks, refills,
        metadata_bytes;
};

static void walk_superslabs(struct walk *walk) {
    const char *arena = global("arena");
    const char *head = inside(arena, "arena", "all");
    const uint32_t link_offset = field("superslab", "all_link")->offset;
    for (const char *link = pointer(head, "list", "next"); link != head;
         link = pointer(link, "list", "next")) {
        const char *superslab = link - link_offset;
        for (uint64_t rest = number(superslab, "superslab", "run_start"); rest != 0;
             rest &= rest - 1) {
            const char *run;
            memcpy(&run, element(superslab, "superslab", "runs", bit_lowest(rest)), sizeof run);
            if (number(run, "run", "kind") == constant("run_kind_large")) {
                walk->large_blocks++;
                walk->large_bytes += number(run, "run", "large_bytes");
                continue;
            }
            assert_int_equal(number(run, "run", "kind"), constant("run_kind_slab"));
            walk->slabs++;
            const char *bits = pointer(run, "run", "free_bits");
            for (uint64_t w = 0; w < (number(run, "run", "block_count") + 63) / 64; w++) {
                uint64_t word;
                memcpy(&word, bits + 8 * w, 8);
                walk->free_blocks += bit_count(word);
            }
        }
    }
}

static void walk_caches(struct walk *walk) {
    const char *registry = global("registry");
    const uint32_t refills = (uint32_t)((const char *)row_named(&ROOT->counters, "refills") -
                                        (const char *)ROOT->counters.rows) /
                             ROOT->counters.row_bytes;
    for (const char *cache = pointer(registry, "registry", "all"); cache != NULL;
         cache = pointer(cache, "thread_cache", "next_all")) {
        assert_int_equal(number(cache, "thread_cache", "thread_id"), os_thread_id());
        const char *heap = inside(cache, "thread_cache", "heap");
        uint64_t value;
        memcpy(&value, element(inside(heap, "heap", "counters"), "counters", "value", refills), 8);
        walk->refills += value;
        for (uint32_t i = 0; i < ROOT->size_classes.count; i++) {
            const char *magazine = element(cache, "thread_cache", "magazines", i);
            const char *node = pointer(magazine, "magazine", "node");
            if (node != NULL) {
                uintptr_t top;
                memcpy(&top, element(cache, "thread_cache", "top", constant("page_kind_slab") + i),
                       sizeof top);
                walk->cached_blocks +=
                    (top - (uintptr_t)node) / 8 - 1 - number(magazine, "magazine", "floor") +
                    number(magazine, "magazine", "depot_count") * (constant("node_slots") - 1);
            }
        }
    }
}

static void walk_huge(struct walk *walk) {
    const char *table = global("huge_table");
    const char *head = inside(table, "huge_table", "live");
    for (const char *link = pointer(head, "list", "next"); link != head;
         link = pointer(link, "list", "next")) {
        const char *huge = link - field("huge", "link")->offset;
        assert_int_equal(number(huge, "huge", "state"), constant("huge_state_live"));
        walk->huge_blocks++;
    }
}

static void walk_metadata(struct walk *walk) {
    for (const char *chunk = pointer(global("metadata"), "metadata", "chunks"); chunk != NULL;
         chunk = pointer(chunk, "metadata_chunk", "next")) {
        walk->metadata_bytes += number(chunk, "metadata_chunk", "bytes");
    }
}

static void walk_finds_what_the_books_say(void **state) {
    (void)state;
    void *blocks[2000];
    for (size_t i = 0; i < ARRAY_COUNT(blocks); i++) {
        blocks[i] = hakmem_alloc(i % 3000 + 1);
    }
    for (size_t i = 0; i < ARRAY_COUNT(blocks); i += 3) {
        hakmem_dealloc(blocks[i]);
    }
    void *large = hakmem_alloc(200 * KIB);
    void *huge = hakmem_alloc(5 * MIB);
    assert_non_null(large);
    assert_non_null(huge);

    struct stats stats;
    stats_collect(&stats);
    struct walk walk = {0};
    walk_superslabs(&walk);
    walk_caches(&walk);
    walk_huge(&walk);
    walk_metadata(&walk);
    uint64_t free_blocks = 0;
    uint64_t cached_blocks = 0;
    for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        free_blocks += stats.class[i].free_blocks;
        cached_blocks += stats.class[i].cached_blocks;
    }
    assert_true(free_blocks != 0 && cached_blocks != 0);
    assert_int_equal(walk.free_blocks, free_blocks);
    assert_int_equal(walk.cached_blocks, cached_blocks);
    assert_int_equal(walk.large_blocks, 1);
    assert_int_equal(walk.large_bytes, stats.gauge[GAUGE_large_bytes]);
    assert_int_equal(walk.huge_blocks, 1);
    assert_int_equal(walk.refills, stats.counter[COUNTER_refills]);
    assert_true(walk.metadata_bytes >= stats.gauge[GAUGE_metadata_bytes]);
    assert_int_equal(walk.slabs,
                     stats.counter[COUNTER_slabs_created] - stats.counter[COUNTER_slabs_released]);
}

// ---- Generations

static uint64_t generation(const char *object, const char *structure) {
    const char *lock = inside(object, structure, "lock");
    assert_int_equal(number(lock, "lock", "state"), 0);
    return number(lock, "lock", "generation");
}

static void a_change_is_a_new_generation(void **state) {
    (void)state;
    void *first = hakmem_alloc(100);
    assert_non_null(first);
    const char *arena = global("arena");
    const char *table = global("huge_table");
    const uint64_t arena_before = generation(arena, "arena");
    const uint64_t huge_before = generation(table, "huge_table");
    assert_non_null(hakmem_alloc(200 * KIB));
    assert_int_equal(generation(arena, "arena"), arena_before + 1);
    assert_int_equal(generation(table, "huge_table"), huge_before);
    assert_non_null(hakmem_alloc(5 * MIB));
    assert_int_equal(generation(table, "huge_table"), huge_before + 1);
}

// ---- Events

static uint64_t kind_of(const char *name) {
    return ((const struct hakmem_inspect_event_kind *)row_named(&ROOT->event_kinds, name))->number;
}

// Events of a kind in the ring; the last one's place in *latest.
static unsigned count_events(const char *name, const char **latest) {
    unsigned count = 0;
    uint64_t last = 0;
    for (uint32_t i = 0; i < field("events", "ring")->count; i++) {
        const char *event = element(global("events"), "events", "ring", i);
        const uint64_t stamp = number(event, "event", "stamp");
        if ((stamp & 0xff) == kind_of(name)) {
            assert_int_equal((stamp >> 8) % constant("event_count"), i);
            *latest = count == 0 || stamp > last ? event : *latest;
            last = count == 0 || stamp > last ? stamp : last;
            count++;
        }
    }
    return count;
}

static void slow_paths_leave_events(void **state) {
    (void)state;
    const char *event = NULL;
    void *huge = hakmem_alloc(5 * MIB);
    assert_int_equal(count_events("huge_alloc", &event), 1);
    assert_int_equal(number(event, "event", "a"), (uintptr_t)huge);
    assert_int_equal(number(event, "event", "b"), 5 * MIB);
    assert_int_equal(number(event, "event", "thread"), thread_cache->thread_pointer);
    assert_int_equal(count_events("superslab_mapped", &event), 0);
    assert_non_null(hakmem_alloc(100));
    assert_int_equal(count_events("superslab_mapped", &event), 1);
    assert_int_equal(count_events("slab_created", &event), 1);
    assert_int_equal(count_events("thread_attached", &event), 1);
    assert_int_equal(number(event, "event", "b"), os_thread_id());
}

static void a_slab_that_moves_leaves_an_event(void **state) {
    (void)state;
    static struct heap from, to;
    const char *event = NULL;
    void *block;
    lifecycle_start();
    heap_init(&from, 100);
    heap_init(&to, 101);
    lock_acquire(&from.lock);
    assert_int_equal(heap_take(&from, 3, 1, &block), 1);
    assert_true(heap_move_slab(&from, &to, 3));
    lock_release(&from.lock);
    assert_int_equal(count_events("slab_moved", &event), 1);
    assert_int_equal(number(event, "event", "a"), (uintptr_t)block);
    assert_int_equal(number(event, "event", "b"), page_owner(101, 3));
}

static void frequent_events_are_recorded_when_asked_for(void **state) {
    (void)state;
    const char *event = NULL;
    const struct hakmem_inspect_field *wanted = field("control", "events");
    uint32_t one = 1;
    hakmem_dealloc(hakmem_alloc(200 * KIB));
    assert_int_equal(count_events("large_alloc", &event), 0);
    memcpy((char *)(uintptr_t)global("control") + wanted->offset, &one, sizeof one);
    hakmem_dealloc(hakmem_alloc(200 * KIB));
    assert_int_equal(count_events("large_alloc", &event), 1);
    assert_int_equal(number(event, "event", "b"), 200 * KIB);
    assert_int_equal(count_events("large_free", &event), 1);
    assert_non_null(hakmem_alloc(100));
    assert_true(count_events("refill", &event) > 0);
}

static void a_purge_is_done_at_the_next_tick(void **state) {
    (void)state;
    uint32_t wish = 1;
    void *huge = hakmem_alloc(5 * MIB);
    hakmem_dealloc(huge);
    assert_true(huge_has_kept());
    memcpy((char *)(uintptr_t)global("control") + field("control", "purge_wanted")->offset, &wish,
           sizeof wish);
    thread_cache->pace_ticks -= OS_TICKS_PACE;
    assert_non_null(hakmem_alloc(200 * KIB));
    assert_false(huge_has_kept());
    assert_int_equal(number(global("control"), "control", "purge_done"), 1);
    // And the next wish at the next.
    hakmem_dealloc(hakmem_alloc(5 * MIB));
    assert_true(huge_has_kept());
    wish = 2;
    memcpy((char *)(uintptr_t)global("control") + field("control", "purge_wanted")->offset, &wish,
           sizeof wish);
    thread_cache->pace_ticks -= OS_TICKS_PACE;
    assert_non_null(hakmem_alloc(200 * KIB));
    assert_false(huge_has_kept());
    assert_int_equal(number(global("control"), "control", "purge_done"), 2);
}

static void ring_keeps_the_latest(void **state) {
    (void)state;
    for (unsigned i = 0; i < 3 * EVENT_COUNT; i++) {
        event_record(EVENT_purge, i, 0);
    }
    const char *event = NULL;
    assert_int_equal(count_events("purge", &event), EVENT_COUNT);
    assert_int_equal(number(event, "event", "a"), 3 * EVENT_COUNT - 1);
    assert_int_equal(number(global("events"), "events", "next"), 3 * EVENT_COUNT);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(root_describes_itself),
        cmocka_unit_test(fields_lie_in_known_structures),
        cmocka_unit_test(no_name_is_cut_or_twice),
        cmocka_unit_test(options_show_value_and_origin),
        cmocka_unit_test(size_classes_are_those_in_use),
        cmocka_unit_test(walk_finds_what_the_books_say),
        cmocka_unit_test(a_change_is_a_new_generation),
        cmocka_unit_test(slow_paths_leave_events),
        cmocka_unit_test(a_slab_that_moves_leaves_an_event),
        cmocka_unit_test(frequent_events_are_recorded_when_asked_for),
        cmocka_unit_test(ring_keeps_the_latest),
        cmocka_unit_test(a_purge_is_done_at_the_next_tick),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
