#include "control/policy.h"

#include "base/bits.h"
#include "thread/capacity.h"

// A class with a smaller part of the window's slow paths has nothing to gain.
#define EVENTS_PART 32
// Slow paths of a class for 2^30 ns: so many, 8 us apart, take some two per cent of the time. Then half of what else may reach the slabs
// is too much; where fewer come there is nothing to gain by it that is worth blocks in the order of their frees, not of their addresses.
#define RATE_FREQUENT (UINT32_C(1) << 17)
#define FREQUENT_PART 2
// A raise must bring slow paths per processor time below this share of what they were.
#define GAIN_PERCENT_MAX 85
// Judgements against a raise, one after another, that take it back. One may be a neighbour's noise.
#define FAILURES_MAX 2
// The first cycle after a raise sees the change itself.
#define SETTLING_CYCLES 2
// For longer nothing that a cache could hold comes or goes: such a cycle tells nothing.
#define CYCLE_WINDOWS_MAX 64
// As many windows in which a class was used and took no slow path are a cycle as well. Between what comes and what goes in bulk there may be
// some that say nothing.
#define QUIET_WINDOWS 4
#define PAUSE_WINDOWS 16
// A larger cache makes slow paths no more frequent: when so many per cent come, the program itself has changed, and the trial
// says nothing of the raise. The next one begins once two windows more have shown what it is compared with.
#define CHANGED_PERCENT 120
#define CHANGED_WINDOWS 3
// After the end of a turn, which says nothing against the raise: as long at most, so that turns without end make few decisions.
#define TURN_PAUSE_WINDOWS_MAX 256
// After a look at a class that no raise was tried for. PAUSE_WINDOWS, doubled so often.
#define LOOK_PAUSE_WINDOWS_MAX 1024
#define PAUSE_WINDOWS_MAX 16384
// Not in use for so long, a class's capacity is for others.
#define IDLE_WINDOWS 8
// Capacity moves to a class with so many times the slow paths per byte.
#define DENSITY_RATIO 4

struct step {
    struct policy_state *state;
    const struct policy_window *window;
    const struct policy_limits *limits;
    const struct policy_audience *audience;
    unsigned count;
    unsigned busy_count;
    uint8_t busy[SIZE_CLASS_COUNT];       // the cached classes with slow paths, rising
    uint32_t capacity[SIZE_CLASS_COUNT];  // as decided so far
    // Of the busy ones.
    uint32_t density[SIZE_CLASS_COUNT];  // slow paths for each MiB of that
    uint32_t wanted[SIZE_CLASS_COUNT];   // capacity after a raise; 0: none is due
    bool is_tried[SIZE_CLASS_COUNT];     // was looked at for a raise
    bool has_cycled[SIZE_CLASS_COUNT];   // its cycle has ended with this window
    uint64_t spent_bytes;                // what the capacities cost
    uint64_t idle_bytes;                 // what classes that are not in use would give of it
    uint64_t budget_bytes;
    uint64_t promised_bytes;  // what raises on trial may need beyond what their classes have
    uint64_t in_vain;         // raises that were taken back
    uint64_t events;
};

static uint32_t events_of(const struct policy_signals *signals) {
    return signals->refills + signals->flushes;
}

static void begin_cycle(struct policy_class *class) {
    class->cycle = class->cycle_windows = 0;
    class->cycle_events = class->cycle_time = 0;
}

// What was seen so far is of another capacity, or of another time.
static void forget_cycles(struct policy_class *class) {
    begin_cycle(class);
    class->rate = 0;
}

// Of a cycle; 0 when nobody looked at the clock for a part of it.
static uint32_t rate_of(const struct policy_class *class) {
    if ((class->cycle & POLICY_CYCLE_UNTIMED) != 0) {
        return 0;
    }
    const uint64_t events = class->cycle_events;
    const uint64_t rate = (events << 24) / greatest_u64(1, class->cycle_time);
    return (uint32_t)greatest_u64(1, least_u64(rate, UINT32_MAX));
}

// Adds a window in which the class was used to its cycle. Whether that ended: `rate` is then of it.
static bool pass_cycle(struct policy_class *class, const struct policy_signals *signals,
                       uint64_t cpu_ns) {
    const uint8_t both = POLICY_CYCLE_REFILLED | POLICY_CYCLE_FLUSHED;
    class->cycle |= signals->refills != 0 ? POLICY_CYCLE_REFILLED : 0;
    class->cycle |= signals->flushes != 0 ? POLICY_CYCLE_FLUSHED : 0;
    class->cycle |= cpu_ns == 0 ? POLICY_CYCLE_UNTIMED : 0;
    class->cycle_windows++;
    class->cycle_events += events_of(signals);
    class->cycle_time = (uint32_t)least_u64(class->cycle_time + cpu_ns / 64, UINT32_MAX);
    // Where a raise is wanted, of how many slow paths there are in a time, these tell nothing.
    const bool is_quiet = class->cycle_events == 0 && class->cycle_windows == QUIET_WINDOWS &&
                          (class->cycle & POLICY_CYCLE_WANTED) == 0;
    if ((class->cycle & both) != both && !is_quiet) {
        return false;
    }
    if (class->cycle_windows > 1 && !is_quiet && (class->cycle & POLICY_CYCLE_HALF) == 0) {
        class->cycle = (uint8_t)((class->cycle & ~both) | POLICY_CYCLE_HALF);
        return false;
    }
    class->rate = rate_of(class);
    begin_cycle(class);
    return true;
}

static void decide(struct step *step, enum policy_knob knob, uint64_t class_index, uint64_t from,
                   uint64_t to, enum policy_signal signal, uint64_t value) {
    const struct policy_decision decision = {knob, (uint32_t)class_index, from, to, signal, value};
    step->audience->decided(step->audience->context, &decision);
    step->count++;
}

static void set_capacity(struct step *step, uint64_t class_index, uint32_t to,
                         enum policy_signal signal, uint64_t value) {
    const uint32_t from = step->capacity[class_index];
    decide(step, POLICY_KNOB_cap, class_index, from, to, signal, value);
    step->spent_bytes += capacity_cost(class_index, to) - capacity_cost(class_index, from);
    step->capacity[class_index] = to;
}

void policy_pause_more(struct policy_pause *pause, uint16_t first, uint16_t most) {
    const uint64_t longer = greatest_u64(first, 2u * pause->length);
    pause->left = (uint16_t)least_u64(longer, most);
    pause->length = (uint16_t)greatest_u64(pause->length, pause->left);
}

static void pause_more(struct policy_pause *pause, uint16_t first) {
    policy_pause_more(pause, first, PAUSE_WINDOWS_MAX);
}

// After a look at a class that no raise was tried for: it counts for no later pause.
static void pause_after_look(struct policy_class *class) {
    const unsigned windows = (unsigned)PAUSE_WINDOWS << class->looks;
    class->raise.left = (uint16_t)windows;
    class->looks = (uint8_t)(class->looks + (windows < LOOK_PAUSE_WINDOWS_MAX));
}

static void pause_pass(struct policy_pause *pause) {
    pause->left = (uint16_t)(pause->left - (pause->left != 0));
}

static void end_trial(struct policy_class *class) {
    class->before = 0;
    class->failures = 0;
}

static uint32_t blocks_in(uint64_t bytes, uint64_t class_index) {
    const uint64_t block_bytes = greatest_u64(1, size_classes[class_index].block_bytes);
    return (uint32_t)greatest_u64(1, bytes / block_bytes);
}

// Whether the class reaches the slabs with more than one in `part` of the operations that it may. All may: it never does.
static bool misses(const struct step *step, uint64_t class_index, unsigned part) {
    const struct policy_signals *signals = &step->window->classes[class_index];
    const uint64_t moved = (uint64_t)signals->refilled_blocks + signals->flushed_blocks;
    const uint64_t permille = step->limits->miss_permille[class_group_of(class_index)];
    return permille < 1000 && (uint64_t)events_of(signals) * 1000 * part > moved * permille;
}

// Whether a raise may help the class: it reaches the slabs both ways, and has a fair part of that.
static bool may_be_raised(const struct step *step, uint64_t class_index) {
    const struct policy_class *class = &step->state->classes[class_index];
    const uint64_t events = events_of(&step->window->classes[class_index]);
    return class->raise.left == 0 && class->before == 0 && step->has_cycled[class_index] &&
           events * EVENTS_PART >= step->events && misses(step, class_index, FREQUENT_PART);
}

// What a raise would make of the class's capacity.
static void note_wanted(struct step *step, uint64_t class_index) {
    step->wanted[class_index] = 0;
    if (step->is_tried[class_index] || !may_be_raised(step, class_index)) {
        return;
    }
    const enum class_group group = class_group_of(class_index);
    const uint64_t capacity = step->capacity[class_index];
    const uint64_t limit = step->window->classes[class_index].limit;
    if (capacity < limit) {
        // It grows there by itself, by twice as much each time, and without a trial.
        step->wanted[class_index] = (uint32_t)least_u64(limit, 2 * capacity);
        return;
    }
    const uint64_t raised =
        capacity + greatest_u64(1, capacity * step->limits->step_percent[group] / 100);
    const uint64_t most =
        greatest_u64(blocks_in(step->limits->class_bytes_max[group], class_index), limit);
    if (least_u64(raised, most) > capacity) {
        step->wanted[class_index] = (uint32_t)least_u64(raised, most);
    }
}

static void note_density(struct step *step, uint64_t class_index) {
    const uint64_t events = events_of(&step->window->classes[class_index]);
    const uint64_t cost = capacity_cost(class_index, step->capacity[class_index]);
    step->density[class_index] =
        (uint32_t)least_u64((events << 20) / greatest_u64(1, cost), UINT32_MAX);
}

// Has more than a class starts with, and may lose it.
static bool may_give(const struct step *step, uint64_t class_index) {
    const uint32_t capacity = step->capacity[class_index];
    return step->state->classes[class_index].take.left == 0 && capacity > 1 &&
           (uint64_t)capacity * size_classes[class_index].block_bytes > step->limits->start_bytes;
}

static bool is_idle(const struct step *step, uint64_t class_index) {
    return step->state->classes[class_index].idle >= IDLE_WINDOWS && may_give(step, class_index);
}

// What the class would give because it is not in use.
static uint64_t idle_bytes(const struct step *step, uint64_t class_index) {
    if (!is_idle(step, class_index)) {
        return 0;
    }
    return capacity_cost(class_index, step->capacity[class_index]) -
           capacity_cost(class_index, blocks_in(step->limits->start_bytes, class_index));
}

// To another class's good.
static void take(struct step *step, uint64_t class_index, uint32_t to, enum policy_signal signal,
                 uint64_t value) {
    struct policy_class *class = &step->state->classes[class_index];
    step->idle_bytes -= idle_bytes(step, class_index);
    end_trial(class);
    forget_cycles(class);
    set_capacity(step, class_index, to, signal, value);
    pause_more(&class->take, PAUSE_WINDOWS);
    note_density(step, class_index);
    note_wanted(step, class_index);
}

// Ends a raise that showed no gain. Where the class has not grown by it, what falls is its limit alone.
static void take_back(struct step *step, uint64_t class_index, enum policy_signal signal,
                      uint64_t value) {
    struct policy_class *class = &step->state->classes[class_index];
    const uint32_t limit = step->window->classes[class_index].limit;
    if (step->capacity[class_index] > class->before) {
        set_capacity(step, class_index, class->before, signal, value);
    } else {
        decide(step, POLICY_KNOB_cap, class_index, limit, class->before, signal, value);
    }
    end_trial(class);
    class->rate = 0;
    step->in_vain++;
}

// Whether the class's raise is still on trial.
static bool judge(struct step *step, uint64_t class_index) {
    struct policy_class *class = &step->state->classes[class_index];
    const struct policy_signals *signals = &step->window->classes[class_index];
    if (class->before == 0) {
        return false;
    }
    if (step->window->cpu_ns == 0) {
        return true;
    }
    // A class that was closed meanwhile has none, and keeps what it learned.
    if (signals->capacity != 0 && signals->limit <= class->before) {
        // Somebody else took it.
        end_trial(class);
        return false;
    }
    const bool is_endless = signals->used && class->cycle_windows == CYCLE_WINDOWS_MAX;
    const bool is_over = is_endless || class->idle >= IDLE_WINDOWS;
    if (!is_over && !step->has_cycled[class_index]) {
        return true;
    }
    if (!is_over && class->settling > 0) {
        class->settling--;
        return true;
    }
    const uint32_t rate = is_endless ? rate_of(class) : class->rate;
    const uint64_t percent = 100 * (uint64_t)rate / greatest_u64(1, class->rate_before);
    const bool is_taken_up = signals->used && signals->capacity > class->before;
    if (is_taken_up && rate != 0 && percent <= GAIN_PERCENT_MAX) {
        end_trial(class);
        return false;
    }
    if (is_over || !is_taken_up) {
        // No slow path came, hardly one of one kind, or none that wanted more, for the class's turn is over: that is no gain, nor a
        // raise in vain.
        take_back(step, class_index, POLICY_SIGNAL_idle, class->idle);
        policy_pause_more(&class->raise, CHANGED_WINDOWS, TURN_PAUSE_WINDOWS_MAX);
        return false;
    }
    if (rate == 0) {
        return true;
    }
    const bool has_changed = percent > CHANGED_PERCENT;
    if (!has_changed && ++class->failures < FAILURES_MAX) {
        return true;
    }
    take_back(step, class_index, POLICY_SIGNAL_gain, percent);
    pause_more(&class->raise, has_changed ? CHANGED_WINDOWS : PAUSE_WINDOWS);
    return false;
}

// The windows before a raise are those that it is compared with.
static bool is_soon_raised(const struct policy_class *class) {
    return class->raise.left != 0 && class->raise.left <= CHANGED_WINDOWS;
}

// The class whose capacity saves least, if that is little beside what it would save for this one; or none:
// SIZE_CLASS_COUNT.
static uint64_t least_dense(const struct step *step, uint64_t class_index) {
    uint64_t found = SIZE_CLASS_COUNT;
    uint64_t least = step->density[class_index] / DENSITY_RATIO;
    for (unsigned n = 0; n < step->busy_count; n++) {
        const uint64_t i = step->busy[n];
        if (i != class_index && step->density[i] < least && step->state->classes[i].before == 0 &&
            may_give(step, i)) {
            least = step->density[i];
            found = i;
        }
    }
    return found;
}

static uint32_t half(const struct step *step, uint64_t class_index) {
    return step->capacity[class_index] / 2;
}

static bool fits(const struct step *step, uint64_t bytes) {
    return step->spent_bytes + bytes <= step->budget_bytes;
}

// Whether all that can be had makes room for `bytes`. `victim`: as least_dense().
static bool could_fit(const struct step *step, uint64_t bytes, uint64_t victim) {
    uint64_t room = greatest_u64(step->budget_bytes, step->limits->budget_bytes_max);
    if (step->spent_bytes + bytes > room) {
        room += step->idle_bytes;
        room += victim == SIZE_CLASS_COUNT ? 0
                                           : capacity_cost(victim, step->capacity[victim]) -
                                                 capacity_cost(victim, half(step, victim));
    }
    return step->spent_bytes + bytes <= room;
}

static void take_from_idle(struct step *step, uint64_t bytes) {
    for (uint64_t i = 0; i < SIZE_CLASS_COUNT && !fits(step, bytes); i++) {
        if (is_idle(step, i)) {
            take(step, i, blocks_in(step->limits->start_bytes, i), POLICY_SIGNAL_idle,
                 step->state->classes[i].idle);
        }
    }
}

static void raise_budget(struct step *step, uint64_t bytes) {
    const uint64_t needed = step->spent_bytes + bytes;
    const uint64_t more = least_u64(needed, step->limits->budget_bytes_max);
    if (more > step->budget_bytes) {
        decide(step, POLICY_KNOB_budget, SIZE_CLASS_COUNT, step->budget_bytes, more,
               POLICY_SIGNAL_demand, needed - step->budget_bytes);
        step->budget_bytes = more;
    }
}

// The reserve is for raises that pay: what one that was taken back had of it goes back, unless classes have grown into it.
static void lower_budget(struct step *step) {
    const uint64_t least =
        greatest_u64(step->spent_bytes + step->promised_bytes, step->limits->budget_bytes);
    if (step->in_vain != 0 && least < step->budget_bytes) {
        decide(step, POLICY_KNOB_budget, SIZE_CLASS_COUNT, step->budget_bytes, least,
               POLICY_SIGNAL_demand, 0);
        step->budget_bytes = least;
    }
}

// Makes room for `bytes` of the class; false, and nothing is decided, when that cannot be.
static bool make_room(struct step *step, uint64_t class_index, uint64_t bytes) {
    if (fits(step, bytes)) {
        return true;
    }
    const uint64_t victim = least_dense(step, class_index);
    if (!could_fit(step, bytes, victim)) {
        return false;
    }
    take_from_idle(step, bytes);
    if (!fits(step, bytes)) {
        raise_budget(step, bytes);
    }
    if (!fits(step, bytes)) {
        take(step, victim, half(step, victim), POLICY_SIGNAL_density, step->density[victim]);
    }
    return true;
}

static void raise_class(struct step *step, uint64_t class_index, uint32_t to) {
    const struct policy_signals *signals = &step->window->classes[class_index];
    struct policy_class *class = &step->state->classes[class_index];
    const uint32_t from = step->capacity[class_index];
    const uint64_t block_bytes = size_classes[class_index].block_bytes;
    // Where there is no room for all of it, for a half, and so on down to twice what the class has.
    while (!make_room(step, class_index, (to - from) * block_bytes)) {
        if (to / 2 <= from) {
            policy_pause_more(&class->raise, CHANGED_WINDOWS, TURN_PAUSE_WINDOWS_MAX);
            return;
        }
        to /= 2;
    }
    const uint64_t more = (to - from) * block_bytes;
    if (to <= signals->limit) {
        // It takes the room by itself.
        step->spent_bytes += more;
        return;
    }
    const uint64_t moved = (uint64_t)signals->refilled_blocks + signals->flushed_blocks;
    set_capacity(step, class_index, to, POLICY_SIGNAL_churn,
                 (uint64_t)events_of(signals) * 1000 / greatest_u64(1, moved));
    class->before = from;
    class->settling = SETTLING_CYCLES;
    class->looks = 0;
}

static void look_at(struct step *step, uint64_t class_index) {
    struct policy_class *class = &step->state->classes[class_index];
    const struct policy_signals *signals = &step->window->classes[class_index];
    const uint32_t events = events_of(signals);
    const uint32_t rate_last = class->rate;
    step->capacity[class_index] = signals->capacity;
    step->spent_bytes += capacity_cost(class_index, signals->capacity);
    step->events += events;
    step->is_tried[class_index] = false;
    step->has_cycled[class_index] =
        signals->used && pass_cycle(class, signals, step->window->cpu_ns);
    class->idle = (uint8_t)(signals->used ? 0 : least_u64(class->idle + 1u, UINT8_MAX));
    pause_pass(&class->raise);
    pause_pass(&class->take);
    if (judge(step, class_index) || is_soon_raised(class)) {
        step->state->is_settled = false;
    }
    if (class->cycle_windows == CYCLE_WINDOWS_MAX || class->idle == IDLE_WINDOWS) {
        if ((class->cycle & POLICY_CYCLE_WANTED) != 0) {
            pause_after_look(class);
        }
        forget_cycles(class);
    }
    if ((class->cycle & POLICY_CYCLE_WANTED) != 0) {
        step->state->is_settled = false;
    }
    if (class->before == 0) {
        if (step->has_cycled[class_index]) {
            class->rate_before = (uint32_t)greatest_u64(class->rate, rate_last);
        }
    } else if (signals->limit > signals->capacity) {
        step->promised_bytes +=
            (uint64_t)(signals->limit - signals->capacity) * size_classes[class_index].block_bytes;
    }
    step->idle_bytes += idle_bytes(step, class_index);
    if (events != 0 && signals->capacity != 0) {
        step->busy[step->busy_count++] = (uint8_t)class_index;
        note_density(step, class_index);
    }
}

// Of those that want more, that with the most slow paths for each byte; or none: SIZE_CLASS_COUNT.
static uint64_t most_dense(const struct step *step) {
    uint64_t best = SIZE_CLASS_COUNT;
    uint64_t highest = 0;
    for (unsigned n = 0; n < step->busy_count; n++) {
        const uint64_t i = step->busy[n];
        if (step->density[i] > highest && step->wanted[i] != 0) {
            best = i;
            highest = step->density[i];
        }
    }
    return best;
}

static void raise_classes(struct step *step) {
    for (unsigned n = 0; n < step->busy_count; n++) {
        note_wanted(step, step->busy[n]);
    }
    uint64_t class_index;
    while ((class_index = most_dense(step)) != SIZE_CLASS_COUNT) {
        struct policy_class *class = &step->state->classes[class_index];
        const uint32_t to = step->wanted[class_index];
        step->state->is_settled = false;
        step->wanted[class_index] = 0;
        step->is_tried[class_index] = true;
        if (class->rate == 0) {
            class->cycle |= POLICY_CYCLE_WANTED;
        } else if (class->rate < RATE_FREQUENT && !misses(step, class_index, 1)) {
            pause_after_look(class);
        } else {
            raise_class(step, class_index, to);
        }
    }
}

unsigned policy_step(struct policy_state *state, const struct policy_window *window,
                     const struct policy_limits *limits, const struct policy_audience *audience) {
    struct step step;
    step.state = state;
    step.window = window;
    step.limits = limits;
    step.audience = audience;
    step.count = step.busy_count = 0;
    step.spent_bytes = step.idle_bytes = step.events = 0;
    step.promised_bytes = step.in_vain = 0;
    step.budget_bytes = window->budget_bytes;
    state->is_settled = true;
    for (uint64_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        look_at(&step, i);
    }
    lower_budget(&step);
    raise_classes(&step);
    return step.count;
}
