/* The result line, in one write at the end. */
#include "frame_inside.h"

#include "proof.h"

#include <inttypes.h>
#include <unistd.h>

enum { LINE_BYTES = 1 << 18 };

void frame_prepare(void) {
    proof_before();
    frame_floor_find();
    frame_account_find();
}

void frame_write(struct text *text) {
    text_add(text, "\n");
    if (text->cut) {
        frame_fail("the result line is too long");
    }
    for (size_t at = 0; at < text->used;) {
        ssize_t put = write(STDOUT_FILENO, text->start + at, text->used - at);
        if (put < 0) {
            frame_fail("the result line could not be written");
        }
        at += (size_t)put;
    }
}

void frame_report_with(const struct frame_options *options, uint64_t ops, uint64_t checksum,
                       void (*more)(struct text *text)) {
    static char line[LINE_BYTES];
    struct text text = text_in(line, sizeof line);
    if (options->idle_ms > 0) {
        frame_extra("freed_rss_bytes", frame_rss_exact());
        frame_idle(options->idle_ms, NULL, NULL);
        frame_extra("idle_rss_bytes", frame_rss_exact());
    }
    text_add(&text,
             "{\"program\":\"%s\",\"unit\":\"%s\",\"ops\":%" PRIu64 ",\"checksum\":\"%016" PRIx64
             "\",\"seed\":%" PRIu64 ",\"threads\":%u,\"checked\":%s,",
             options->workload->name, options->workload->unit, ops, checksum, options->seed,
             options->thread_count, options->check ? "true" : "false");
    frame_figures_add(&text);
    if (more != NULL) {
        more(&text);
    }
    text_add(&text, "\"proof\":");
    proof_add(&text);
    text_add(&text, "}");
    frame_write(&text);
}

void frame_report(const struct frame_options *options, uint64_t ops, uint64_t checksum) {
    frame_report_with(options, ops, checksum, NULL);
}
