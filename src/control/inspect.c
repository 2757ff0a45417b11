#include "hakmem_inspect.h"

#include "config/control.h"
#include "config/counters.h"
#include "config/options.h"
#include "config/profile.h"
#include "control/inspect.h"
#include "control/learner.h"
#include "heap/guarded.h"
#include "heap/huge_table.h"
#include "heap/large.h"
#include "os/events.h"
#include "os/os.h"
#include "space/arena_pages.h"
#include "space/metadata.h"
#include "space/page_map.h"
#include "space/size_class.h"
#include "thread/lifecycle.h"
#include "thread/research.h"

// All rows are in writable data, which core files have, and hold their names' own bytes: no pointer that
// the loader would have to fill in at start-up, in a section of their own: pages that no process pays for unless
// somebody reads them. Nothing in them ever changes, but for the size classes of a profile.
#define COLD __attribute__((section("hakmem_inspect")))

// Sizes of pointers and of single elements are what the rows are about.
// NOLINTBEGIN(bugprone-sizeof-expression)

#define STRUCTURE(structure) {#structure, sizeof(struct structure)},
#define FIELD(structure, field, kind, what)
#define ARRAY(structure, field, kind, what)
static struct hakmem_inspect_structure structures[] COLD = {
#include "control/inspect.def"
};

#define KIND_OF_NUMBER HAKMEM_INSPECT_NUMBER
#define KIND_OF_POINTER HAKMEM_INSPECT_POINTER
#define KIND_OF_EMBEDDED HAKMEM_INSPECT_STRUCTURE
#define TARGET_OF_NUMBER(what) ""
#define TARGET_OF_POINTER(what) what
#define TARGET_OF_EMBEDDED(what) what
#define UNIT_OF_NUMBER(what) what
#define UNIT_OF_POINTER(what) ""
#define UNIT_OF_EMBEDDED(what) ""

#define FIELD_ROW(structure, field, kind, what, element)       \
    {#structure,                                               \
     #field,                                                   \
     TARGET_OF_##kind(what),                                   \
     UNIT_OF_##kind(what),                                     \
     offsetof(struct structure, field),                        \
     sizeof(element),                                          \
     sizeof(((struct structure *)0)->field) / sizeof(element), \
     KIND_OF_##kind},
#define STRUCTURE(structure)
#define FIELD(structure, field, kind, what) \
    FIELD_ROW(structure, field, kind, what, ((struct structure *)0)->field)
#define ARRAY(structure, field, kind, what) \
    FIELD_ROW(structure, field, kind, what, ((struct structure *)0)->field[0])
static struct hakmem_inspect_field fields[] COLD = {
#include "control/inspect.def"
};

static struct hakmem_inspect_constant constants[] COLD = {
    {"page_shift", PAGE_SHIFT},
    {"superslab_shift", SUPERSLAB_SHIFT},
    {"superslab_pages", SUPERSLAB_PAGES},
    {"window_shift", WINDOW_SHIFT},
    {"window_superslabs", WINDOW_SUPERSLABS},
    {"address_bits", ADDRESS_BITS},
    {"size_class_count", SIZE_CLASS_COUNT},
    {"node_slots", NODE_SLOTS},
    {"node_bytes", NODE_BYTES},
    {"heap_id_shift", HEAP_ID_SHIFT},
    {"huge_chunk_count", HUGE_CHUNK_COUNT},
    {"large_bytes_max", LARGE_BYTES_MAX},
    {"page_map_bytes", PAGE_MAP_BYTES},
    {"page_entry_bytes", sizeof(page_entry_atomic)},
    {"page_kind_bits", PAGE_KIND_BITS},
    {"event_count", EVENT_COUNT},
    {"knob_cap", POLICY_KNOB_cap},
    {"knob_budget", POLICY_KNOB_budget},
    {"knob_huge_pages", POLICY_KNOB_huge_pages},
    {"knob_excess_bytes", POLICY_KNOB_excess_bytes},
    {"knob_huge_cache_bytes", POLICY_KNOB_huge_cache_bytes},
    {"knob_huge_block_pages", POLICY_KNOB_huge_block_pages},
    {"knob_thread_blocks", POLICY_KNOB_thread_blocks},
    {"knob_slab_purge_delay_ms", POLICY_KNOB_slab_purge_delay_ms},
    {"knob_purge_delay_ms", POLICY_KNOB_purge_delay_ms},
    {"signal_churn", POLICY_SIGNAL_churn},
    {"signal_gain", POLICY_SIGNAL_gain},
    {"signal_idle", POLICY_SIGNAL_idle},
    {"signal_demand", POLICY_SIGNAL_demand},
    {"signal_density", POLICY_SIGNAL_density},
    {"signal_resident", POLICY_SIGNAL_resident},
    {"signal_refault", POLICY_SIGNAL_refault},
    {"signal_successors", POLICY_SIGNAL_successors},
    {"signal_touch", POLICY_SIGNAL_touch},
    {"histogram_steps", HISTOGRAM_STEPS},
    {"histogram_buckets", HISTOGRAM_BUCKETS},
    {"research_sample", RESEARCH_SAMPLE},
    {"research_level_count", RESEARCH_LEVEL_COUNT},
    {"research_level_node", RESEARCH_NODE},
    {"research_level_depot", RESEARCH_DEPOT},
    {"research_level_heap", RESEARCH_HEAP},
    {"research_level_new_slab", RESEARCH_NEW_SLAB},
    {"research_level_remote", RESEARCH_REMOTE},
    {"research_level_large", RESEARCH_LARGE},
    {"research_level_huge", RESEARCH_HUGE},
    {"research_level_guarded", RESEARCH_GUARDED},
    {"research_level_failed", RESEARCH_FAILED},
    {"counter_count", COUNTER_COUNT},
    {"page_kind_slab", PAGE_KIND_SLAB},
    {"page_kind_large", PAGE_KIND_LARGE},
    {"page_kind_huge", PAGE_KIND_HUGE},
    {"page_kind_guarded", PAGE_KIND_GUARDED},
    {"run_kind_free", RUN_FREE},
    {"run_kind_slab", RUN_SLAB},
    {"run_kind_large", RUN_LARGE},
    {"slab_purge_none", SLAB_PURGE_NONE},
    {"slab_purge_used", SLAB_PURGE_USED},
    {"slab_purge_aged", SLAB_PURGE_AGED},
    {"slab_purge_refused", SLAB_PURGE_REFUSED},
    {"cache_state_unused", CACHE_UNUSED},
    {"cache_state_in_use", CACHE_IN_USE},
    {"cache_state_orphan", CACHE_ORPHAN},
    {"cache_state_kept", CACHE_KEPT},
    {"huge_state_unused", HUGE_UNUSED},
    {"huge_state_live", HUGE_LIVE},
    {"huge_state_kept", HUGE_KEPT},
    {"huge_state_leaving", HUGE_LEAVING},
    {"guarded_state_unused", GUARDED_UNUSED},
    {"guarded_state_live", GUARDED_LIVE},
    {"guarded_state_freed", GUARDED_FREED},
    {"option_origin_default", OPTION_ORIGIN_DEFAULT},
    {"option_origin_mode", OPTION_ORIGIN_MODE},
    {"option_origin_profile", OPTION_ORIGIN_PROFILE},
    {"option_origin_conf", OPTION_ORIGIN_CONF},
    {"option_origin_environment", OPTION_ORIGIN_ENVIRONMENT},
    {"option_origin_runtime", OPTION_ORIGIN_RUNTIME},
    {"os_call_mmap", OS_MMAP},
    {"os_call_munmap", OS_MUNMAP},
    {"os_call_mprotect", OS_MPROTECT},
    {"os_call_madvise", OS_MADVISE},
    {"os_call_mremap", OS_MREMAP},
    {"os_call_mincore", OS_MINCORE},
    {"os_call_futex", OS_FUTEX},
    {"os_call_clock", OS_CLOCK},
    {"os_call_random", OS_RANDOM},
};

#define OPTION(name, type, initial, min, max, unit, when, help) \
    {#name,                                                     \
     unit,                                                      \
     offsetof(struct options, name),                            \
     HAKMEM_INSPECT_OPTION_##type,                              \
     OPTION_WHEN_##when == OPTION_WHEN_LIVE,                    \
     0},
#define CHOICE(option, name, number, help)
#define MODE(mode, option, value)
static struct hakmem_inspect_option option_rows[] COLD = {
#include "config/options.def"
};

#define OPTION(name, type, initial, min, max, unit, when, help)
#define CHOICE(option, name, number, help) {#option, #name, (number)},
#define MODE(mode, option, value)
static struct hakmem_inspect_choice choices[] COLD = {
#include "config/options.def"
};

#define COUNTER(name, unit, help) {#name, unit},
#define GAUGE(name, unit, help)
static struct hakmem_inspect_counter counters[] COLD = {
#include "config/counters.def"
};

#define SIZE_CLASS(index, previous, bytes, pages) \
    [index] = {(bytes), (pages), (pages)*PAGE_BYTES / (bytes), 0},
static struct hakmem_inspect_size_class size_class_rows[] COLD = {
#include "space/size_class.def"
};
#undef SIZE_CLASS

#define ALWAYS 1
#define ASKED 0
#define EVENT(name, a, b, when, help) {#name, a, b, EVENT_##name, when},
static struct hakmem_inspect_event_kind event_kinds[] COLD = {
#include "os/events.def"
};
#undef ALWAYS
#undef ASKED

// The first bytes of the file that this is part of, where they are mapped; the linker's own name for them.
extern const char __ehdr_start[] __attribute__((weak, visibility("hidden")));

// With the root, and what start-up writes anyway.
#define HOT __attribute__((section(".data")))

#define OBJECT(name, kind, what, object, element)                 \
    {                                                             \
        name, TARGET_OF_##kind(what), &(object), sizeof(element), \
            sizeof(object) / sizeof(element), KIND_OF_##kind, 0   \
    }
#define ONE(name, kind, what, object) OBJECT(name, kind, what, object, object)
#define SEVERAL(name, kind, what, object) OBJECT(name, kind, what, object, (object)[0])
static struct hakmem_inspect_global globals[] HOT = {
    ONE("registry", EMBEDDED, "registry", registry_state),
    ONE("late_heap", EMBEDDED, "heap", late_heap_state),
    ONE("arena", EMBEDDED, "arena", arena_state),
    ONE("huge_table", EMBEDDED, "huge_table", huge_table_state),
    SEVERAL("huge_chunks", POINTER, "huge", huge_chunks),
    ONE("guarded_pool", EMBEDDED, "guarded_pool", guarded_pool_state),
    ONE("metadata", EMBEDDED, "metadata", metadata_state),
    ONE("process_counters", EMBEDDED, "counters", process_counters),
    ONE("os_call_counters", EMBEDDED, "os_call_counters", os_call_counters),
    ONE("page_map_flat", POINTER, "", page_map_flat),
    ONE("events", EMBEDDED, "events", events),
    ONE("control", EMBEDDED, "control", control),
    ONE("decision_log", EMBEDDED, "decision_log", decision_log),
    ONE("research_lives", POINTER, "research_lives", research_lives),
    SEVERAL("no_node", POINTER, "", cache_no_node),
    SEVERAL("page_map_windows", POINTER, "window", page_map_windows),
    ONE("options", EMBEDDED, "", options),
    SEVERAL("option_origins", NUMBER, "", option_origins),
    ONE("profile_in_force", POINTER, "", profile_in_force),
};

// NOLINTEND(bugprone-sizeof-expression)

#define TABLE(rows) \
    { rows, ARRAY_COUNT(rows), sizeof(rows)[0] }

// Under a name of its own: `self` must be this place, also where the program has a copy of the exported one. In the
// section that holds the arena, or a linker that collects sections nobody refers to would leave it out.
static struct hakmem_inspect_root root
    __attribute__((section(".data"), aligned(CACHE_LINE_BYTES))) = {
        .magic = HAKMEM_INSPECT_MAGIC,
        .self = &root,
        .byte_order = HAKMEM_INSPECT_BYTE_ORDER,
        .major = HAKMEM_INSPECT_MAJOR,
        .minor = HAKMEM_INSPECT_MINOR,
        .root_bytes = sizeof root,
        .pointer_bytes = sizeof(void *),
        .version = HAKMEM_VERSION,
        .elf_header = __ehdr_start,
        .structures = TABLE(structures),
        .fields = TABLE(fields),
        .constants = TABLE(constants),
        .globals = TABLE(globals),
        .options = TABLE(option_rows),
        .choices = TABLE(choices),
        .counters = TABLE(counters),
        .size_classes = TABLE(size_class_rows),
        .event_kinds = TABLE(event_kinds),
};
EXPORTED INSPECTABLE(root, hakmem_inspect_root);

void inspect_start(void) {
    if (profile_in_force->class_count == 0) {
        return;
    }
    for (unsigned i = 0; i < SIZE_CLASS_COUNT; i++) {
        const struct size_class *class = &size_classes[i];
        size_class_rows[i] = (struct hakmem_inspect_size_class){
            class->block_bytes, class->slab_pages, class->block_count, 0};
    }
}
