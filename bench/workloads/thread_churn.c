/* thread_churn: threads that live for one task, as in servers with a thread per connection. Each
 * takes its blocks, frees all but one in eight, and ends; its successor frees the rest. What an
 * allocator sets up for a thread, and what becomes of it, is paid for each task (the extreme of
 * larson's generations). */
#include "frame.h"

#include <pthread.h>

enum { KEPT_ONE_IN = 8 };

static const struct frame_workload thread_churn = {
    .name = "thread_churn",
    .unit = "threads started and ended",
};

struct task {
    const struct frame_options *options;
    struct frame_slot *slots; /* on entry: what the predecessor left */
    struct frame_random random;
    uint64_t checksum;
};

struct plan {
    const struct frame_options *options;
    struct task *tasks; /* one chain of tasks for each thread that starts them */
    uint64_t tasks_each;
};

static void *task_main(void *argument) {
    struct task *task = argument;
    const struct frame_options *options = task->options;
    frame_floor_circle(options->slot_count * options->bytes_max);
    task->checksum += frame_drop_all(task->slots, options->slot_count, options->check);
    for (size_t i = 0; i < options->slot_count; i++) {
        const uint64_t bits = frame_random_next(&task->random);
        frame_take(&task->slots[i], frame_bytes_pick(options, bits), frame_random_mix(bits));
    }
    for (size_t i = 0; i < options->slot_count; i++) {
        if (i % KEPT_ONE_IN != 0) {
            task->checksum += frame_drop(&task->slots[i], options->check);
        }
    }
    frame_floor_circle(0);
    return NULL;
}

static void worker(unsigned index, void *argument) {
    const struct plan *plan = argument;
    for (uint64_t i = 0; i < plan->tasks_each; i++) {
        pthread_t thread;
        const int error = pthread_create(&thread, NULL, task_main, &plan->tasks[index]);
        if (error != 0) {
            frame_fail_thread(error);
        }
        pthread_join(thread, NULL);
    }
}

int main(int argc, char **argv) {
    struct frame_options options = {
        .workload = &thread_churn,
        .seed = 37,
        .ops = 8000,
        .warm_ops = 100,
        .slot_count = 100,
        .bytes_min = 16,
        .bytes_max = 1024,
        .thread_count = 2,
    };
    frame_options_parse(&options, argc, argv);
    struct plan plan = {.options = &options};
    plan.tasks = frame_map(options.thread_count * sizeof *plan.tasks);
    for (unsigned i = 0; i < options.thread_count; i++) {
        plan.tasks[i].options = &options;
        plan.tasks[i].random = frame_random_make(options.seed, i);
        plan.tasks[i].slots = frame_map(options.slot_count * sizeof *plan.tasks[i].slots);
    }
    plan.tasks_each = options.warm_ops / options.thread_count;
    frame_threads_run(options.thread_count, worker, &plan);
    plan.tasks_each = options.ops / options.thread_count;
    frame_threads_run(options.thread_count, worker, &plan);
    frame_stop();
    uint64_t checksum = 0;
    for (unsigned i = 0; i < options.thread_count; i++) {
        checksum += plan.tasks[i].checksum;
        checksum += frame_drop_all(plan.tasks[i].slots, options.slot_count, options.check);
    }
    frame_report(&options, plan.tasks_each * options.thread_count, checksum);
    return 0;
}
