// What the process is told of its heap, in all the forms there are: each figure is the same in each.
#include "behaviour.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

#include "hakmem.h"

#pragma weak hakmem_stats_json
#pragma weak hakmem_totals

static char json[64 * 1024], xml[64 * 1024], lines[64 * 1024];

static int append(void *context, const char *text, size_t bytes) {
    size_t *length = context;
    assert_true(*length + bytes < sizeof json);
    memcpy(json + *length, text, bytes);
    *length += bytes;
    json[*length] = '\0';
    return 0;
}

// All of them at one time, with nothing allocated in between.
static struct mallinfo2 take_all(struct hakmem_totals *totals) {
    size_t length = 0;
    FILE *stream = fmemopen(xml, sizeof xml, "w");
    static char stream_buffer[64 * 1024];
    assert_non_null(stream);
    setvbuf(stream, stream_buffer, _IOFBF, sizeof stream_buffer);
    FILE *errors = tmpfile();
    const int saved = dup(2);
    dup2(fileno(errors), 2);
    malloc_stats();
    dup2(saved, 2);
    close(saved);
    assert_int_equal(hakmem_stats_json(append, &length), 0);
    assert_int_equal(malloc_info(0, stream), 0);
    hakmem_totals(totals);
    const struct mallinfo2 info = mallinfo2();
    fclose(stream);
    lines[pread(fileno(errors), lines, sizeof lines - 1, 0)] = '\0';
    fclose(errors);
    return info;
}

// The number behind a text; fails where it is not there.
static unsigned long long behind(const char *text, const char *before) {
    const char *found = strstr(text, before);
    if (found == NULL) {
        fail_msg("no %s", before);
        return 0;
    }
    return strtoull(found + strlen(before), NULL, 10);
}

static unsigned long long in_json(const char *name) {
    char key[64];
    snprintf(key, sizeof key, "\n\"%s\": ", name);
    return behind(json, key);
}

static void same_in_lines_and_xml(const char *element, const char *name) {
    char key[64];
    const unsigned long long value = in_json(name);
    snprintf(key, sizeof key, "<%s name=\"%s\" unit=\"", element, name);
    const char *row = strstr(xml, key);
    assert_non_null(row);
    assert_int_equal(behind(row, "value=\""), value);
    snprintf(key, sizeof key, "\n  %s ", name);
    // Counters that are 0 are not printed.
    if (value != 0 || strcmp(element, "gauge") == 0) {
        assert_int_equal(behind(lines, key), value);
    } else {
        assert_null(strstr(lines, key));
    }
}

static void classes_are_the_same(void) {
    unsigned compared = 0;
    for (const char *row = strstr(xml, "<size block="); row != NULL;
         row = strstr(row + 1, "<size block=")) {
        char key[64];
        snprintf(key, sizeof key, "\n\"block_bytes\": %llu,", behind(row, "block=\""));
        const char *other = strstr(json, key);
        assert_non_null(other);
        assert_int_equal(behind(other, "\"slab_bytes\": "), behind(row, "slab_bytes=\""));
        assert_int_equal(behind(other, "\"live_blocks\": "), behind(row, "live=\""));
        assert_int_equal(behind(other, "\"cached_blocks\": "), behind(row, "cached=\""));
        assert_int_equal(behind(other, "\"free_blocks\": "), behind(row, "free=\""));
        compared++;
    }
    assert_true(compared > 10);
}

// The elements that readers of glibc's form look for: of the one heap, and of all.
static void totals_are_the_same(const struct mallinfo2 *info) {
    const char *end_of_heap = strstr(xml, "</heap>");
    assert_non_null(strstr(xml, "<heap nr=\"0\">\n<sizes>"));
    assert_non_null(end_of_heap);
    const char *parts[] = {strstr(xml, "</sizes>"), end_of_heap};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(behind(parts[i], "<total type=\"fast\" count=\""), info->smblks);
        const char *fast = strstr(parts[i], "type=\"fast\"");
        assert_int_equal(behind(fast, "size=\""), info->fsmblks);
        assert_int_equal(behind(parts[i], "<total type=\"rest\" count=\""), info->ordblks);
        const char *rest = strstr(parts[i], "type=\"rest\"");
        assert_int_equal(behind(rest, "size=\""), in_json("slab_free_bytes"));
        assert_int_equal(behind(parts[i], "<system type=\"current\" size=\""), info->arena);
        assert_true(behind(parts[i], "<system type=\"max\" size=\"") >= info->arena);
        assert_int_equal(behind(parts[i], "<aspace type=\"total\" size=\""), info->arena);
        assert_int_equal(behind(parts[i], "<aspace type=\"mprotect\" size=\""), info->arena);
    }
    assert_int_equal(behind(end_of_heap, "<total type=\"mmap\" count=\""), info->hblks);
    assert_int_equal(behind(strstr(end_of_heap, "type=\"mmap\""), "size=\""), info->hblkhd);
    assert_int_equal(info->smblks > 0, info->fsmblks > 0);
    assert_true(info->ordblks > 0);
}

static void all_forms_have_the_same_figures(void **state) {
    (void)state;
    struct hakmem_totals totals;
    void *blocks[3000];
    for (size_t i = 0; i < 3000; i++) {
        blocks[i] = malloc(i * 7 % 4000 + 1);
    }
    for (size_t i = 0; i < 3000; i += 2) {
        free(blocks[i]);
    }
    blocks[0] = malloc(300000);
    blocks[2] = malloc(5000000);
    take_all(&totals);  // what the streams allocate first stays cached
    const struct mallinfo2 info = take_all(&totals);

#define COUNTER(name, unit, help) same_in_lines_and_xml("counter", #name);
#define GAUGE(name, unit, help) same_in_lines_and_xml("gauge", #name);
#include "../../src/config/counters.def"
    classes_are_the_same();
    totals_are_the_same(&info);
    assert_int_equal(totals.live_bytes, in_json("live_bytes"));
    assert_int_equal(totals.live_blocks, in_json("live_blocks"));
    assert_int_equal(totals.cached_bytes, in_json("cached_bytes"));
    assert_int_equal(totals.free_bytes, in_json("slab_free_bytes"));
    assert_int_equal(totals.dirty_bytes, in_json("dirty_bytes"));
    assert_int_equal(totals.mapped_bytes, in_json("mapped_bytes"));
    assert_int_equal(totals.metadata_bytes, in_json("metadata_bytes"));
    assert_int_equal(info.uordblks + info.hblkhd, in_json("live_bytes"));
    assert_int_equal(info.hblkhd, in_json("huge_bytes"));
    assert_int_equal(info.hblks, in_json("huge_blocks"));
    assert_int_equal(info.arena + info.hblkhd, in_json("mapped_bytes"));
    assert_int_equal(info.fsmblks, in_json("cached_bytes"));
    assert_int_equal(info.keepcost, in_json("dirty_bytes"));
    for (size_t i = 1; i < 3000; i += 2) {
        free(blocks[i]);
    }
    free(blocks[0]);
    free(blocks[2]);
}

static int refuse(void *context, const char *text, size_t bytes) {
    (void)text;
    (void)bytes;
    ++*(int *)context;
    return 42;
}

static void writing_ends_where_it_is_refused(void **state) {
    (void)state;
    int calls = 0;
    assert_int_equal(hakmem_stats_json(refuse, &calls), 42);
    assert_int_equal(calls, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_forms_have_the_same_figures),
        cmocka_unit_test(writing_ends_where_it_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
