/* The command line of every workload: pairs of a name and a value. */
#include "frame_inside.h"

#include <errno.h>
#include <stdio.h>

static _Noreturn void fail_option(const char *name, const char *problem) {
    char text[256];
    snprintf(text, sizeof text, "%s: %s", name, problem);
    frame_fail(text);
}

static uint64_t number_parse(const char *name, const char *text) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || text[0] == '-') {
        fail_option(name, "not a number");
    }
    return value;
}

static unsigned word_parse(const char *name, const char *text, const char *const *words) {
    for (unsigned i = 0; words != NULL && words[i] != NULL; i++) {
        if (strcmp(text, words[i]) == 0) {
            return i;
        }
    }
    fail_option(name, "no such word");
}

static void own_option_set(const struct frame_workload *workload, const char *name,
                           const char *text) {
    const struct frame_own_option *own = workload->own;
    for (; own != NULL && own->name != NULL; own++) {
        if (strcmp(name, own->name) == 0) {
            *own->value = number_parse(name, text);
            return;
        }
    }
    fail_option(name, "no such option");
}

static void option_set(struct frame_options *options, const char *name, const char *text) {
    static const char *const sizes[] = {"uniform", "pareto", NULL};
    const struct {
        const char *name;
        uint64_t *value;
    } numbers[] = {
        {"--ops", &options->ops},
        {"--warm", &options->warm_ops},
        {"--seed", &options->seed},
        {"--slots", &options->slot_count},
        {"--min", &options->bytes_min},
        {"--max", &options->bytes_max},
        {"--rounds", &options->round_count},
        {"--idle-ms", &options->idle_ms},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (strcmp(name, numbers[i].name) == 0) {
            *numbers[i].value = number_parse(name, text);
            return;
        }
    }
    if (strcmp(name, "--threads") == 0) {
        options->thread_count = (unsigned)number_parse(name, text);
    } else if (strcmp(name, "--check") == 0) {
        options->check = number_parse(name, text) != 0;
    } else if (strcmp(name, "--sizes") == 0) {
        options->sizes = (enum frame_sizes)word_parse(name, text, sizes);
    } else if (strcmp(name, "--variant") == 0) {
        options->variant = word_parse(name, text, options->workload->variants);
    } else {
        own_option_set(options->workload, name, text);
    }
}

static _Noreturn void fail_usage(const struct frame_workload *workload) {
    char buffer[1024];
    struct text text = text_in(buffer, sizeof buffer);
    text_add(&text,
             "usage: %s [--ops N] [--warm N] [--seed N] [--slots N] [--min BYTES] [--max BYTES]"
             " [--sizes uniform|pareto] [--rounds N] [--threads N] [--idle-ms N] [--check 0|1]",
             workload->name);
    for (size_t i = 0; workload->variants != NULL && workload->variants[i] != NULL; i++) {
        text_add(&text, "%s%s", i == 0 ? " [--variant " : "|", workload->variants[i]);
    }
    text_add(&text, "%s", workload->variants != NULL ? "]" : "");
    const struct frame_own_option *own = workload->own;
    for (; own != NULL && own->name != NULL; own++) {
        text_add(&text, " [%s N]", own->name);
    }
    frame_fail(text.start);
}

void frame_options_parse(struct frame_options *options, int argc, char **argv) {
    frame_prepare();
    options->check = true;
    options->slot_count = options->slot_count == 0 ? 1 : options->slot_count;
    options->round_count = options->round_count == 0 ? 1 : options->round_count;
    options->thread_count = options->thread_count == 0 ? 1 : options->thread_count;
    if (argc % 2 == 0) {
        fail_usage(options->workload);
    }
    for (int i = 1; i + 1 < argc; i += 2) {
        option_set(options, argv[i], argv[i + 1]);
    }
    if (options->bytes_min < sizeof(uint64_t) || options->bytes_min > options->bytes_max ||
        options->bytes_max > INT32_MAX) {
        frame_fail("block sizes need 8 <= min <= max < 2 GiB");
    }
    if (options->slot_count == 0 || options->slot_count > UINT32_MAX || options->ops == 0 ||
        options->round_count == 0) {
        frame_fail("ops, slots and rounds cannot be zero");
    }
    if (options->thread_count == 0 || options->thread_count > 256) {
        frame_fail("the number of threads is 1 to 256");
    }
    const uint64_t smallest_share = ((uint64_t)options->bytes_min << 32) / options->bytes_max;
    options->pareto_scale = (1ull << 32) - smallest_share;
}
