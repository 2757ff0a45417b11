#include "histogram.h"

#include <inttypes.h>

enum { EMPTY_READINGS = 10001 };

/* The longest duration of a bucket, in ticks. */
static uint64_t bucket_end(size_t bucket) {
    if (bucket < 2 * HISTOGRAM_SUBS) {
        return bucket;
    }
    const unsigned shift = (unsigned)(bucket >> HISTOGRAM_SUB_BITS) - 1;
    const uint64_t sub = (bucket & (HISTOGRAM_SUBS - 1)) + HISTOGRAM_SUBS;
    return ((sub + 1) << shift) - 1;
}

void histogram_merge(struct histogram *into, const struct histogram *from) {
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        into->counts[i] += from->counts[i];
    }
    into->total += from->total;
    if (from->longest_ticks > into->longest_ticks) {
        into->longest_ticks = from->longest_ticks;
    }
}

/* The end, in ticks, of the bucket that the percentile falls into. */
static uint64_t percentile(const struct histogram *histogram, double share) {
    const double allowed_above = (double)histogram->total * (1.0 - share);
    uint64_t above = histogram->total;
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        above -= histogram->counts[i];
        if ((double)above <= allowed_above) {
            const uint64_t end = bucket_end(i);
            return end < histogram->longest_ticks ? end : histogram->longest_ticks;
        }
    }
    return histogram->longest_ticks;
}

void histogram_print(struct text *text, const struct histogram *histogram, double ns_per_tick) {
    static const struct {
        const char *name;
        double share;
    } percentiles[] = {
        {"p50", 0.5},     {"p90", 0.9},       {"p99", 0.99},
        {"p99_9", 0.999}, {"p99_99", 0.9999}, {"p99_999", 0.99999},
    };
    text_add(text, "{\"count\":%" PRIu64, histogram->total);
    for (size_t i = 0; i < sizeof percentiles / sizeof percentiles[0]; i++) {
        const uint64_t ticks = percentile(histogram, percentiles[i].share);
        text_add(text, ",\"%s\":%.1f", percentiles[i].name, (double)ticks * ns_per_tick);
    }
    text_add(text, ",\"max\":%.1f,\"histogram\":[", (double)histogram->longest_ticks * ns_per_tick);
    const char *comma = "";
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        if (histogram->counts[i] != 0) {
            text_add(text, "%s[%.1f,%" PRIu64 "]", comma, (double)bucket_end(i) * ns_per_tick,
                     histogram->counts[i]);
            comma = ",";
        }
    }
    text_add(text, "]}");
}

void histogram_clock_start(struct histogram_clock *clock) {
    clock->ns = frame_now_ns();
    clock->ticks = histogram_ticks();
}

double histogram_ns_per_tick(const struct histogram_clock *clock) {
    const uint64_t ns = frame_now_ns() - clock->ns;
    const uint64_t ticks = histogram_ticks() - clock->ticks;
    return ticks > 0 ? (double)ns / (double)ticks : 1.0;
}

uint64_t histogram_empty_ticks(void) {
    static struct histogram empty;
    for (unsigned i = 0; i < EMPTY_READINGS; i++) {
        const uint64_t before = histogram_ticks();
        histogram_count(&empty, histogram_ticks() - before);
    }
    return percentile(&empty, 0.5);
}
