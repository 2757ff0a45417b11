#include "base/text.h"
#include "control/stats.h"
#include "os/file.h"

struct json {
    int (*write)(void *context, const char *text, size_t bytes);
    void *context;
    int result;  // of the last write; nothing is written after one that is not 0
    bool first;  // nothing yet in the innermost object or array
    struct text line;
};

static void flush(struct json *json) {
    if (json->result == 0 && json->line.count != 0) {
        json->result = json->write(json->context, json->line.bytes, json->line.count);
    }
    text_clear(&json->line);
}

// A comma unless it is the first, then the name.
static void begin_member(struct json *json, const char *name) {
    flush(json);
    text_string(&json->line, json->first ? "\n\"" : ",\n\"");
    text_string(&json->line, name);
    text_string(&json->line, "\": ");
    json->first = false;
}

static void number(struct json *json, const char *name, uint64_t value) {
    begin_member(json, name);
    text_unsigned(&json->line, value);
}

// `value` has nothing that JSON would escape.
static void string(struct json *json, const char *name, const char *value) {
    begin_member(json, name);
    text_string(&json->line, "\"");
    text_string(&json->line, value);
    text_string(&json->line, "\"");
}

static void begin(struct json *json, const char *name, const char *bracket) {
    begin_member(json, name);
    text_string(&json->line, bracket);
    json->first = true;
}

static void end(struct json *json, const char *bracket) {
    text_string(&json->line, "\n");
    text_string(&json->line, bracket);
    json->first = false;
}

static void class_row(struct json *json, const struct stats_class *class) {
    flush(json);
    text_string(&json->line, json->first ? "\n{" : ",\n{");
    json->first = true;
    number(json, "block_bytes", class->block_bytes);
    number(json, "slab_bytes", class->slab_bytes);
    number(json, "live_blocks", class->live_blocks);
    number(json, "cached_blocks", class->cached_blocks);
    number(json, "free_blocks", class->free_blocks);
    end(json, "}");
}

int stats_write_json(int (*write)(void *context, const char *text, size_t bytes), void *context) {
    struct stats stats;
    stats_collect(&stats);
    struct json json = {.write = write, .context = context, .first = true};
    text_clear(&json.line);
    text_string(&json.line, "{");
    string(&json, "schema", "hakmem-stats-1");
    string(&json, "version", HAKMEM_VERSION);
    number(&json, "process_id", os_process_id());
    begin(&json, "counters", "{");
#define COUNTER(name, unit, help) number(&json, #name, stats.counter[COUNTER_##name]);
#define GAUGE(name, unit, help)
#include "config/counters.def"
    end(&json, "}");
    begin(&json, "gauges", "{");
#define COUNTER(name, unit, help)
#define GAUGE(name, unit, help) number(&json, #name, stats.gauge[GAUGE_##name]);
#include "config/counters.def"
    end(&json, "}");
    begin(&json, "size_classes", "[");
    for (size_t i = 0; i < size_class_table.count; i++) {
        class_row(&json, &stats.class[i]);
    }
    end(&json, "]");
    end(&json, "}\n");
    flush(&json);
    return json.result;
}
