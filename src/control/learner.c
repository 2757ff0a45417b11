#include "control/learner.h"

#include "base/bits.h"
#include "config/options.h"
#include "control/policy_memory.h"
#include "control/policy_threads.h"
#include "heap/heap_purge.h"
#include "heap/huge_table.h"
#include "os/events.h"
#include "os/os.h"
#include "space/arena_pages.h"
#include "space/metadata.h"
#include "thread/cache.h"
#include "thread/knobs.h"

struct decision_log decision_log;

// Slow paths that are so far apart, about a millisecond, take a thousandth of the time at most: nothing to gain.
#define SELDOM_TICKS (OS_TICKS_PACE / 8)

// One for each cache, made when it has had its first window.
struct learner {
    bool is_on;  // else the next look begins anew
    struct policy_state policy;
    uint64_t window_start_ns;  // os_thread_cpu_ns() then; 0: nobody looks at the end either
    uint64_t window_start_ticks;
    uint32_t window_number;
    uint16_t top_seen
        [SIZE_CLASS_COUNT];  // of each magazine, its low bits: where it was in its node, and which that was
    // Of each class with a raise on trial: the magazine's limit before that; 0: it had none.
    uint32_t limit_before[SIZE_CLASS_COUNT];
};

// The window of a look while it lasts, too much for the stacks that threads may have. One is kept for whoever looks next;
// where several look at once each has its own.
// Acquire exchange by who takes it, acquire and release by who gives one back and may get another's: what was written
// to each comes before.
static _Atomic(struct policy_window *) spare_window;

// NULL when the system has no memory.
static struct policy_window *take_window(void) {
    struct policy_window *window = atomic_exchange_acquire(&spare_window, NULL);
    return window != NULL ? window : metadata_alloc(sizeof *window);
}

static void give_window(struct policy_window *window) {
    struct policy_window *other = atomic_exchange_acq_rel(&spare_window, window);
    if (other != NULL) {
        metadata_free(other, sizeof *other);
    }
}

// Rows come around to the same place. Who was held up amid one for so long finds a later one there, or another finds his unfinished: of two
// for one place the one that comes upon the other is left out, so that a row is one writer's. (In the child of a fork nobody has the place that a
// thread it lost was writing.)
static bool begin_row(_Atomic(uint64_t) *number, uint64_t next, uint64_t places) {
    uint64_t before = atomic_load_relaxed(number);
    const bool is_free = before == 0 ? next <= places : before < next;
    if (!is_free || !atomic_cas_acquire(number, &before, 0)) {
        return false;
    }
    atomic_fence_release();
    return true;
}

// `heap`: its number, 0: no one's.
static void log_decision(uint32_t heap, uint64_t now_ms, const struct policy_decision *decided) {
    const uint64_t number = atomic_add_relaxed(&decision_log.decided, 1) + 1;
    struct decision *row = &decision_log.decisions[number % DECISION_COUNT];
    if (unlikely(!begin_row(&row->number, number, DECISION_COUNT))) {
        return;
    }
    atomic_store_relaxed(&row->ms, now_ms);
    atomic_store_relaxed(&row->from, decided->from);
    atomic_store_relaxed(&row->to, decided->to);
    atomic_store_relaxed(&row->value, decided->value);
    atomic_store_relaxed(&row->heap, heap);
    atomic_store_relaxed(&row->class_index, (uint8_t)decided->class_index);
    atomic_store_relaxed(&row->knob, (uint8_t)decided->knob);
    atomic_store_relaxed(&row->signal, (uint8_t)decided->signal);
    atomic_store_release(&row->number, number);
}

static void log_class(const struct thread_cache *cache, const struct policy_window *window,
                      uint64_t class_index, uint64_t number) {
    const struct policy_signals *signals = &window->classes[class_index];
    struct recorded *row = &decision_log.windows[number % RECORDED_COUNT];
    if (unlikely(!begin_row(&row->number, number, RECORDED_COUNT))) {
        return;
    }
    atomic_store_relaxed(&row->cpu_ns, window->cpu_ns);
    atomic_store_relaxed(&row->budget_bytes, window->budget_bytes);
    atomic_store_relaxed(&row->window, cache->learner->window_number);
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

static bool is_logged(const struct policy_signals *signals) {
    return signals->used && signals->capacity != 0;
}

// The numbers of all rows of a window at once: all threads write the word that they come from.
static void log_window(const struct thread_cache *cache, const struct policy_window *window) {
    uint64_t count = 0;
    for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        count += is_logged(&window->classes[i]);
    }
    if (count == 0) {
        return;
    }
    uint64_t number = atomic_add_relaxed(&decision_log.recorded, count);
    for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        if (is_logged(&window->classes[i])) {
            log_class(cache, window, i, ++number);
        }
    }
}

static uint64_t allowed_with(const struct thread_cache *cache, uint64_t budget_bytes) {
    struct capacity_claim claim = cache->claim;
    claim.budget_bytes = budget_bytes;
    return capacity_allowed(&claim);
}

static struct policy_limits limits_now(const struct thread_cache *cache) {
    return (struct policy_limits){
        .budget_bytes = allowed_with(cache, 0),
        .budget_bytes_max = allowed_with(cache, CAPACITY_BUDGET_MOST),
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

// Takes the window's signals out of the cache, and records them. `now_ns`: os_thread_cpu_ns(), 0 when nobody looked.
static void collect(struct thread_cache *cache, struct policy_window *window, uint64_t now_ns) {
    struct learner *learner = cache->learner;
    window->cpu_ns = now_ns == 0 ? 0 : greatest_u64(1, now_ns - learner->window_start_ns);
    window->budget_bytes = capacity_allowed(&cache->claim);
    learner->window_number++;
    for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        struct magazine *magazine = &cache->magazines[i];
        const struct class_signals signals = magazine->signals;
        void **top = slot_load(cache_class_tops(cache->top), i);
        const uint16_t seen = (uint16_t)((uintptr_t)top / sizeof *top);
        const bool has_moved =
            seen != learner->top_seen[i] && (magazine->active & MAGAZINE_DECAYED) == 0;
        // What comes and goes in bulk may be where it was at each look, but goes through the depot.
        const bool used = has_moved || signals.refills + signals.flushes != 0 ||
                          (magazine->active & MAGAZINE_TOUCHED) != 0;
        learner->top_seen[i] = seen;
        magazine->active &= MAGAZINE_ACTIVE;
        magazine->signals = (struct class_signals){0};
        window->classes[i] = (struct policy_signals){
            .refills = signals.refills,
            .flushes = signals.flushes,
            .refilled_blocks = signals.refilled_blocks,
            .flushed_blocks = signals.flushed_blocks,
            .capacity = magazine->capacity,
            .limit = magazine->capacity == 0
                         ? 0
                         : capacity_limit(window->budget_bytes, i, magazine->limit),
            .used = used,
        };
    }
    log_window(cache, window);
}

static bool is_on_trial(const struct thread_cache *cache, uint64_t class_index) {
    return cache->learner->policy.classes[class_index].before != 0;
}

// Ends a raise: the class has the capacity and the limit from before. These two are not the same where it has begun anew and not
// grown to its limit yet; and one that had none must not have less for good than where nothing is learned.
static void set_back(struct thread_cache *cache, uint64_t class_index, uint32_t before) {
    struct magazine *magazine = &cache->magazines[class_index];
    const uint32_t cut = magazine->limit & CAPACITY_CUT;
    cache_set_limit(cache, class_index, before);
    magazine->limit = cache->learner->limit_before[class_index] | cut;
}

static void set_capacity(struct thread_cache *cache, const struct policy_decision *decision) {
    const uint64_t class_index = decision->class_index;
    const uint32_t to = (uint32_t)decision->to;
    struct magazine *magazine = &cache->magazines[class_index];
    if (is_on_trial(cache, class_index)) {
        // Not of a class that was closed, and forgotten.
        if ((magazine->limit & ~CAPACITY_CUT) > to) {
            set_back(cache, class_index, to);
        }
        return;
    }
    uint32_t cut = CAPACITY_CUT;
    if (decision->signal == POLICY_SIGNAL_churn) {
        // More than a cut may still be less than what the class reaches by itself.
        cut &= magazine->limit;
        cache->learner->limit_before[class_index] = magazine->limit & ~CAPACITY_CUT;
    }
    cache_set_limit(cache, class_index, to | cut);
    if (decision->signal == POLICY_SIGNAL_idle) {
        // When its turn comes again it grows by itself.
        magazine->limit = 0;
    }
}

// A class that lost half would take the room again at once: it holds no more until something may be taken from it again. Then it
// takes by itself what room is free; where another class wants that, it is cut again, for twice as long. What it has learned
// since stays, if that is more than it reaches by itself.
static void end_cuts(struct thread_cache *cache) {
    for (uint32_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        struct magazine *magazine = &cache->magazines[i];
        const struct policy_class *class = &cache->learner->policy.classes[i];
        if ((magazine->limit & CAPACITY_CUT) == 0 || class->take.left != 0 || class->before != 0) {
            continue;
        }
        magazine->limit &= ~CAPACITY_CUT;
        const uint32_t own = capacity_limit(capacity_allowed(&cache->claim), i, 0);
        if (magazine->limit < own) {
            const struct policy_decision decision = {POLICY_KNOB_cap,       i, magazine->limit, own,
                                                     POLICY_SIGNAL_density, 0};
            magazine->limit = 0;
            log_decision(cache->heap.id, cache->clock_ms, &decision);
        }
    }
}

static void apply(void *context, const struct policy_decision *decision) {
    struct thread_cache *cache = context;
    if (decision->knob == POLICY_KNOB_budget) {
        cache->claim.budget_bytes = decision->to;
    } else {
        set_capacity(cache, decision);
    }
    log_decision(cache->heap.id, cache->clock_ms, decision);
}

// Since the last look, which was a window's length of slow paths ago, or more if they were all flushes.
static bool is_seldom(const struct thread_cache *cache, uint64_t now_ticks) {
    const uint64_t slow_paths = greatest_u64(cache->learner_window, cache->learner_events);
    return (now_ticks - cache->learner->window_start_ticks) / slow_paths > SELDOM_TICKS;
}

// The end of a window is the beginning of the next: `now_ns` of both, 0 when nobody has looked. The clock runs while there is
// something to judge, or to gain. Returns whether it was started.
static bool start_window(struct thread_cache *cache, uint64_t now_ns) {
    struct learner *learner = cache->learner;
    const bool is_settled = learner->policy.is_settled;
    const uint64_t now_ticks = os_ticks();
    const bool starts_clock = now_ns == 0 && !is_settled && !is_seldom(cache, now_ticks);
    learner->window_start_ticks = now_ticks;
    learner->window_start_ns = is_settled ? 0 : (starts_clock ? os_thread_cpu_ns() : now_ns);
    return starts_clock;
}

// Raises that nobody will judge any more. A limit that is not the raise's was forgotten meanwhile.
static void end_trials(struct thread_cache *cache) {
    for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        const uint32_t before = cache->learner->policy.classes[i].before;
        if (is_on_trial(cache, i) && cache->magazines[i].limit > before) {
            set_back(cache, i, before);
        }
    }
    // What the budget was raised by for them as well, unless classes have grown into it.
    if (cache->claim.budget_bytes != 0) {
        const uint64_t least = greatest_u64(cache->capacity_bytes, allowed_with(cache, 0));
        cache->claim.budget_bytes = least_u64(cache->claim.budget_bytes, least);
    }
}

// The first look only starts the clock.
static void begin(struct thread_cache *cache) {
    if (cache->learner == NULL) {
        cache->learner = metadata_alloc(sizeof *cache->learner);
    }
    struct learner *learner = cache->learner;
    if (learner == NULL) {
        return;
    }
    end_trials(cache);
    learner->is_on = true;
    learner->policy = (struct policy_state){0};
    learner->window_start_ticks = cache->passed_ticks;
    start_window(cache, 0);
    for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        cache->magazines[i].signals = (struct class_signals){0};
    }
}

// What was seen so far says nothing of what comes.
static void end(struct thread_cache *cache) {
    cache->learner_events = 0;
    cache->learner_is_due = 0;
    cache->learner_window = LEARNER_WINDOW_EVENTS;
    if (cache->learner != NULL) {
        cache->learner->is_on = false;
    }
}

static void learn(struct thread_cache *cache) {
    struct learner *learner = cache->learner;
    if (option_live(learn) == 0) {
        end(cache);
        cache_reset_knobs(cache);
        return;
    }
    if (cache_is_diverted(cache)) {
        // `top`, which tells whether a class is in use, is switched off.
        end(cache);
        return;
    }
    if (learner == NULL || !learner->is_on) {
        begin(cache);
        return;
    }
    struct policy_window *window = take_window();
    if (window == NULL) {
        end(cache);
        return;
    }
    const uint64_t end_ns = learner->window_start_ns == 0 ? 0 : os_thread_cpu_ns();
    collect(cache, window, end_ns);
    const struct policy_limits limits = limits_now(cache);
    const struct policy_audience audience = {apply, cache};
    const unsigned count = policy_step(&learner->policy, window, &limits, &audience);
    give_window(window);
    end_cuts(cache);
    const bool starts_clock = start_window(cache, end_ns);
    // Where there is nothing to decide it looks more seldom.
    cache->learner_window =
        count != 0 || starts_clock
            ? LEARNER_WINDOW_EVENTS
            : (uint32_t)least_u64(2 * cache->learner_window, LEARNER_WINDOW_EVENTS_MAX);
}

// ---- Memory: in whichever thread holds the lock of what it is about

static struct policy_growth growth_state;  // under the arena's lock

static struct policy_growth block_growth_state;  // under that of the table of huge blocks

static bool decide_growth(struct policy_growth *state, enum policy_knob knob,
                          const struct growth_signals *signals) {
    struct policy_decision decision;
    const bool asks = policy_growth(state, signals, &decision);
    if (decision.knob != 0) {
        decision.knob = knob;
        log_decision(0, os_clock_ms_locked(), &decision);
    }
    return asks;
}

static bool on_growth(const struct growth_signals *signals) {
    return decide_growth(&growth_state, POLICY_KNOB_huge_pages, signals);
}

static bool on_block_growth(const struct growth_signals *signals) {
    return decide_growth(&block_growth_state, POLICY_KNOB_huge_block_pages, signals);
}

static void on_refault(struct excess *excess, uint64_t refault_bytes) {
    if (option_live(learn) == 0) {
        excess->raise = (struct excess_raise){0};
        return;
    }
    struct policy_decision decision;
    if (!policy_excess(&excess->raise, excess->bound_bytes, refault_bytes, &decision)) {
        return;
    }
    uint32_t heap = 0;
    if (excess == &huge_table_state.excess) {
        decision.knob = POLICY_KNOB_huge_cache_bytes;
    } else if (excess != &arena_state.excess) {
        heap = CONTAINER_OF(excess, struct heap, excess)->id;
    }
    log_decision(heap, os_clock_ms_locked(), &decision);
}

// By the clock of the last time; in the child of a fork it has begun at 0 again. Where it does not matter there is no OS call.
static uint64_t affordable_bytes(struct purge_delay *delay, uint64_t most_ms,
                                 uint64_t (*cpu_ns)(void)) {
    if (delay->refault_bytes == 0 || delay->ms >= most_ms) {
        return 0;
    }
    const uint64_t now_ns = cpu_ns();
    const uint64_t before_ns = delay->asked_cpu_ns <= now_ns ? delay->asked_cpu_ns : 0;
    delay->asked_cpu_ns = now_ns;
    return refault_bytes_affordable(now_ns - before_ns);
}

// The heap's own thread asks.
static void on_delay(struct purge_delay *delay, uint64_t most_ms) {
    const uint64_t affordable = affordable_bytes(delay, most_ms, os_thread_cpu_ns);
    struct policy_decision decision;
    if (policy_delay(delay, PURGE_EARLY_PART, most_ms, affordable, &decision)) {
        const uint32_t heap = CONTAINER_OF(delay, struct heap, purge_delay)->id;
        log_decision(heap, event_clock_ms(), &decision);
    }
}

static void on_runs_delay(struct purge_delay *delay, uint64_t most_ms) {
    const uint64_t affordable = affordable_bytes(delay, most_ms, os_process_cpu_ns);
    struct policy_decision decision;
    if (policy_delay(delay, RUNS_EARLY_PART, most_ms, affordable, &decision)) {
        decision.knob = POLICY_KNOB_purge_delay_ms;
        log_decision(0, os_clock_ms_locked(), &decision);
    }
}

// ---- Threads that follow one another

static struct policy_succession succession;  // under the registry's lock

static bool on_succession(bool was_soon) {
    if (option_live(learn) == 0) {
        succession = (struct policy_succession){0};
        return false;
    }
    struct policy_decision decision;
    const bool keeps = policy_succession(&succession, was_soon, &decision);
    if (decision.knob != 0) {
        log_decision(0, os_clock_ms_locked(), &decision);
    }
    return keeps;
}

void learner_start(void) {
    atomic_store_relaxed(&space_hooks.growth, on_growth);
    atomic_store_relaxed(&space_hooks.block_growth, on_block_growth);
    atomic_store_relaxed(&space_hooks.refault, on_refault);
    atomic_store_relaxed(&space_hooks.delay, on_delay);
    atomic_store_relaxed(&space_hooks.runs_delay, on_runs_delay);
    atomic_store_relaxed(&knobs_hooks.succession, on_succession);
    atomic_store_relaxed(&knobs_hooks.window, learn);
    atomic_store_relaxed(&knobs_hooks.thread_start, end);
}
