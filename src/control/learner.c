#include "control/learner.h"

#include "base/bits.h"
#include "config/options.h"
#include "os/os.h"
#include "space/metadata.h"
#include "thread/cache.h"
#include "thread/knobs.h"

// Where it pays, a cache may have this many times cache_heap_bytes, as long as its share of cache_total_bytes is as much.
#define HEAP_BYTES_FACTOR 2

struct decision_log decision_log;

// One for each cache, made when it has had its first window.
struct learner {
    struct policy_state policy;
    struct policy_window window;  // scratch: threads may have small stacks
    struct policy_decision decisions[POLICY_DECISIONS_MAX];
    uint64_t window_ticks;  // os_ticks() at its beginning
    uint32_t window_number;
    void **top_seen[SIZE_CLASS_COUNT];  // of each magazine
};

static void log_decision(const struct thread_cache *cache, const struct policy_decision *decided) {
    const uint64_t number = atomic_add_relaxed(&decision_log.decided, 1) + 1;
    struct decision *row = &decision_log.decisions[number % DECISION_COUNT];
    atomic_store_relaxed(&row->number, 0);
    atomic_store_relaxed(&row->ms, cache->clock_ms);
    atomic_store_relaxed(&row->from, decided->from);
    atomic_store_relaxed(&row->to, decided->to);
    atomic_store_relaxed(&row->value, decided->value);
    atomic_store_relaxed(&row->heap, decided->knob == POLICY_KNOB_prewarm ? 0 : cache->heap.id);
    atomic_store_relaxed(&row->class_index, (uint8_t)decided->class_index);
    atomic_store_relaxed(&row->knob, (uint8_t)decided->knob);
    atomic_store_relaxed(&row->signal, (uint8_t)decided->signal);
    atomic_store_release(&row->number, number);
}

static void log_window(const struct thread_cache *cache, const struct learner *learner,
                       uint64_t class_index) {
    const struct policy_signals *signals = &learner->window.classes[class_index];
    const uint64_t number = atomic_add_relaxed(&decision_log.recorded, 1) + 1;
    struct recorded *row = &decision_log.windows[number % RECORDED_COUNT];
    atomic_store_relaxed(&row->number, 0);
    atomic_store_relaxed(&row->ticks, learner->window.ticks);
    atomic_store_relaxed(&row->budget_bytes, learner->window.budget_bytes);
    atomic_store_relaxed(&row->window, learner->window_number);
    atomic_store_relaxed(&row->capacity, signals->capacity);
    atomic_store_relaxed(&row->limit, signals->limit);
    atomic_store_relaxed(&row->heap, cache->heap.id);
    atomic_store_relaxed(&row->refills, (uint16_t)signals->refills);
    atomic_store_relaxed(&row->flushes, (uint16_t)signals->flushes);
    atomic_store_relaxed(&row->refilled_blocks, (uint16_t)signals->refilled_blocks);
    atomic_store_relaxed(&row->flushed_blocks, (uint16_t)signals->flushed_blocks);
    atomic_store_relaxed(&row->class_index, (uint8_t)class_index);
    atomic_store_relaxed(&row->used, signals->used);
    atomic_store_release(&row->number, number);
}

static struct policy_limits limits_now(void) {
    const uint64_t heap_bytes = option_live(cache_heap_bytes);
    return (struct policy_limits){
        .budget_bytes = capacity_allowed(heap_bytes),
        .budget_bytes_max = capacity_allowed(HEAP_BYTES_FACTOR * heap_bytes),
        .start_bytes = option_live(cache_start_bytes),
        .class_bytes_max = {option_live(cap_max_tiny), option_live(cap_max_mid),
                            option_live(cap_max_large)},
        .miss_permille = {1000 - (uint32_t)option_live(target_hit_tiny),
                          1000 - (uint32_t)option_live(target_hit_mid),
                          1000 - (uint32_t)option_live(target_hit_large)},
        .step_percent = {(uint32_t)option_live(cap_step_tiny), (uint32_t)option_live(cap_step_mid),
                         (uint32_t)option_live(cap_step_large)},
    };
}

// Takes the window's signals out of the cache, and records them.
static void collect(struct thread_cache *cache, struct learner *learner) {
    const uint64_t ticks = os_ticks();
    const uint64_t class_bytes = option_live(cache_class_bytes);
    struct policy_window *window = &learner->window;
    window->ticks = ticks - learner->window_ticks;
    window->budget_bytes = capacity_allowed(cache->budget_bytes);
    learner->window_ticks = ticks;
    learner->window_number++;
    for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        struct magazine *magazine = &cache->magazines[i];
        const struct class_signals signals = magazine->signals;
        void **top = slot_load(cache_class_tops(cache->top), i);
        const bool used = top != learner->top_seen[i] || signals.refills + signals.flushes != 0;
        learner->top_seen[i] = top;
        magazine->signals = (struct class_signals){0};
        window->classes[i] = (struct policy_signals){
            .refills = signals.refills,
            .flushes = signals.flushes,
            .refilled_blocks = signals.refilled_blocks,
            .flushed_blocks = signals.flushed_blocks,
            .capacity = magazine->capacity,
            .limit = magazine->limit != 0
                         ? magazine->limit
                         : (uint32_t)(class_bytes / greatest_u64(1, size_classes[i].block_bytes)),
            .used = used,
        };
        if (used && magazine->capacity != 0) {
            log_window(cache, learner, i);
        }
    }
}

static void apply(struct thread_cache *cache, const struct policy_decision *decision) {
    if (decision->knob == POLICY_KNOB_budget) {
        cache->budget_bytes = decision->to;
    } else {
        cache_set_limit(cache, decision->class_index, (uint32_t)decision->to);
    }
    log_decision(cache, decision);
}

static void open_learner(struct thread_cache *cache) {
    cache->learner = metadata_alloc(sizeof *cache->learner);
    if (cache->learner == NULL) {
        return;
    }
    cache->learner->window_ticks = os_ticks();
    for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        cache->magazines[i].signals = (struct class_signals){0};
    }
}

static void learn(struct thread_cache *cache) {
    struct learner *learner = cache->learner;
    if (option_live(learn) == 0) {
        return;
    }
    if (learner == NULL) {
        // The first look only starts the clock.
        open_learner(cache);
        return;
    }
    collect(cache, learner);
    const struct policy_limits limits = limits_now();
    const unsigned count =
        policy_step(&learner->policy, &learner->window, &limits, learner->decisions);
    for (unsigned i = 0; i < count; i++) {
        apply(cache, &learner->decisions[i]);
    }
    // Where there is nothing to decide it looks more seldom.
    cache->learner_window =
        count != 0 ? LEARNER_WINDOW_EVENTS
                   : (uint32_t)least_u64(2 * cache->learner_window, LEARNER_WINDOW_EVENTS_MAX);
}

// What the threads that have ended used first; under the registry's lock.
static struct policy_first_use first_uses[SIZE_CLASS_COUNT];

static void learn_first_use(struct thread_cache *cache) {
    // A thread whose windows have passed is past its first moments.
    if (option_live(learn) == 0 || cache->learner != NULL) {
        return;
    }
    for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        struct policy_first_use *use = &first_uses[i];
        const uint64_t before = use->level;
        struct class_signals *signals = &cache->magazines[i].signals;
        const uint32_t blocks = signals->refilled_blocks;
        *signals = (struct class_signals){0};
        // What a profile has set stays.
        if (knobs_prewarm(i) == before && policy_first_use(use, blocks)) {
            knobs_set_prewarm(i, use->level);
            const struct policy_decision decision = {
                POLICY_KNOB_prewarm,     (uint32_t)i, before, use->level,
                POLICY_SIGNAL_first_use, blocks};
            log_decision(cache, &decision);
        }
    }
}

void learner_start(void) {
    atomic_store_relaxed(&knobs_hooks.window, learn);
    atomic_store_relaxed(&knobs_hooks.thread_end, learn_first_use);
}
