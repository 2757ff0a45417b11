// malloc_trim, mallinfo, mallinfo2, malloc_info, malloc_stats, mallopt: they answer, and tell the
// truth.
#include "api.h"

#include <regex.h>

enum { SMALL_COUNT = 40000, SMALL_BYTES = 1000, LARGE_COUNT = 48, LARGE_BYTES = 1 << 20 };

static size_t in_use(void) {
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static size_t held(void) {
    struct mallinfo2 info = mallinfo2();
    return info.arena + info.hblkhd;
}

static void *blocks[SMALL_COUNT];

static void take(int count, size_t bytes) {
    for (int i = 0; i < count; i++) {
        blocks[i] = malloc(bytes);
        assert_non_null(blocks[i]);
        memset(blocks[i], 1, bytes);
    }
}

static void give_back(int count) {
    for (int i = 0; i < count; i++) {
        free(blocks[i]);
        blocks[i] = NULL;
    }
}

static void mallinfo2_follows(int count, size_t bytes) {
    size_t total = (size_t)count * bytes;
    size_t before = in_use();
    take(count, bytes);
    size_t during = in_use();
    assert_true(during >= before + total);
    assert_true(during <= before + total + total / 4 + MIB);
    assert_true(held() >= during);
    struct mallinfo2 info = mallinfo2();
    assert_true(info.arena >= info.uordblks);
    assert_true(info.arena == info.uordblks + info.fordblks);
    give_back(count);
    size_t after = in_use();
    assert_true(after <= before + total / 8 + MIB);
}

static void mallinfo2_tells_the_truth(void **state) {
    (void)state;
    for (int round = 0; round < 3; round++) {
        mallinfo2_follows(SMALL_COUNT, SMALL_BYTES);
        mallinfo2_follows(SMALL_COUNT, 48);
        mallinfo2_follows(2000, 20000);
        mallinfo2_follows(LARGE_COUNT, LARGE_BYTES);
        mallinfo2_follows(4, 16 << 20);
    }
}

// Blocks with a mapping of their own: their number and bytes are figures of their own. glibc draws
// the line where M_MMAP_THRESHOLD says, hakmem above 2 MiB.
static void mallinfo2_counts_mapped_blocks(void **state) {
    (void)state;
    enum { COUNT = 5 };
    const size_t bytes = 48 * MIB;
    assert_int_equal(mallopt(M_MMAP_THRESHOLD, 1 << 20), 1);
    struct mallinfo2 before = mallinfo2();
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = malloc(bytes);
        assert_non_null(blocks[i]);
    }
    struct mallinfo2 during = mallinfo2();
    assert_int_equal(during.hblks, before.hblks + COUNT);
    assert_true(during.hblkhd >= before.hblkhd + COUNT * bytes);
    assert_true(during.hblkhd <= before.hblkhd + COUNT * (bytes + 64 * KIB));
    give_back(COUNT);
    struct mallinfo2 after = mallinfo2();
    assert_int_equal(after.hblks, before.hblks);
    assert_int_equal(after.hblkhd, before.hblkhd);
}

// What is free is told as free, and in no fewer pieces than one.
static void mallinfo2_counts_free_memory(void **state) {
    (void)state;
    take(SMALL_COUNT, 200);
    struct mallinfo2 full = mallinfo2();
    for (int i = 0; i < SMALL_COUNT; i += 2) {
        free(blocks[i]);
        blocks[i] = NULL;
    }
    struct mallinfo2 half = mallinfo2();
    const size_t freed = (size_t)SMALL_COUNT / 2 * 200;
    assert_true(half.arena == half.uordblks + half.fordblks);
    // Half of each slab is in use: none can have left the heap meanwhile.
    assert_true(half.fordblks >= freed / 2);
    assert_true(half.uordblks + freed / 2 <= full.uordblks);
    assert_true(half.ordblks + half.smblks > 1);
    assert_true(half.keepcost <= half.fordblks);
    give_back(SMALL_COUNT);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static void mallinfo_agrees_with_mallinfo2(void **state) {
    (void)state;
    take(SMALL_COUNT, SMALL_BYTES);
    struct mallinfo2 wide = mallinfo2();
    struct mallinfo narrow = mallinfo();
    assert_int_equal(narrow.arena, (int)wide.arena);
    assert_int_equal(narrow.uordblks, (int)wide.uordblks);
    assert_int_equal(narrow.fordblks, (int)wide.fordblks);
    assert_int_equal(narrow.hblks, (int)wide.hblks);
    assert_int_equal(narrow.hblkhd, (int)wide.hblkhd);
    give_back(SMALL_COUNT);
}
#pragma GCC diagnostic pop

// malloc_trim returns 1 when it gave memory back, and then less is resident.
static void trim_gives_memory_back(void **state) {
    (void)state;
    malloc_trim(0);
    size_t before = rss_bytes();
    take(SMALL_COUNT, SMALL_BYTES);
    assert_true(rss_bytes() >= before + (size_t)SMALL_COUNT * SMALL_BYTES);
    give_back(SMALL_COUNT);
    assert_int_equal(malloc_trim(0), 1);
    size_t after = rss_bytes();
    assert_true(after < before + 4 * MIB);
    int again = malloc_trim(0);
    assert_true(again == 0 || again == 1);
    // The pad is a wish about what to keep; any value is accepted.
    malloc_trim(opaque(1));
    malloc_trim(opaque(64 << 20));
    malloc_trim(opaque(SIZE_MAX));
    void *block = malloc(100);
    assert_non_null(block);
    free(block);
}

// The whole output of malloc_info as text, and what malloc_info returned.
static char *info_text(int *result) {
    static char text[4 << 20];
    memset(text, 0, sizeof text);
    FILE *file = tmpfile();
    assert_non_null(file);
    *result = malloc_info(0, file);
    assert_int_equal(fflush(file), 0);
    rewind(file);
    size_t got = fread(text, 1, sizeof text - 1, file);
    text[got] = '\0';
    fclose(file);
    return text;
}

static void require_valid_xml(const char *text) {
    // The child must not be served by the library under test: a Python at fault would hide it.
    static const char command[] =
        "env -u LD_PRELOAD python3 -c 'import sys, xml.etree.ElementTree as tree\n"
        "root = tree.parse(sys.stdin).getroot()\n"
        "assert root.tag == \"malloc\", root.tag\n"
        "assert root.get(\"version\"), root.attrib\n"
        "current = [e for e in root.findall(\"system\") if e.get(\"type\") == \"current\"]\n"
        "assert len(current) == 1 and int(current[0].get(\"size\")) > 0, current\n"
        "maximum = [e for e in root.findall(\"system\") if e.get(\"type\") == \"max\"]\n"
        "assert len(maximum) == 1, maximum\n"
        "assert int(maximum[0].get(\"size\")) >= int(current[0].get(\"size\"))\n"
        "assert root.findall(\"total\"), \"no totals\"\n'";
    FILE *child = popen(command, "w");
    assert_non_null(child);
    assert_int_equal(fwrite(text, 1, strlen(text), child), strlen(text));
    assert_int_equal(pclose(child), 0);
}

static size_t system_current(const char *text) {
    // The document's own element is the last; those before it belong to single heaps.
    const char *found = NULL;
    for (const char *at = text; (at = strstr(at, "<system type=\"current\" size=\"")) != NULL;
         at++) {
        found = at;
    }
    assert_non_null(found);
    return strtoull(found + strlen("<system type=\"current\" size=\""), NULL, 10);
}

static void malloc_info_is_valid_xml(void **state) {
    (void)state;
    int result = -1;
    char *text = info_text(&result);
    assert_int_equal(result, 0);
    require_valid_xml(text);
    size_t before = system_current(text);
    take(SMALL_COUNT, SMALL_BYTES);
    text = info_text(&result);
    assert_int_equal(result, 0);
    require_valid_xml(text);
    assert_true(system_current(text) >= (size_t)SMALL_COUNT * SMALL_BYTES);
    assert_true(system_current(text) > before);
    give_back(SMALL_COUNT);
}

static void malloc_info_refuses_options(void **state) {
    (void)state;
    static const int refused[] = {1, -1, 2, 0x7fffffff};
    FILE *file = tmpfile();
    assert_non_null(file);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        assert_int_equal(malloc_info(refused[i], file), EINVAL);
    }
    fflush(file);
    assert_int_equal(ftell(file), 0);
    fclose(file);
}

// A stream that takes nothing is the caller's affair: the call says success, and nothing is stuck.
static void malloc_info_survives_a_stream_that_fails(void **state) {
    (void)state;
    FILE *full = fopen("/dev/full", "w");
    assert_non_null(full);
    assert_int_equal(setvbuf(full, NULL, _IONBF, 0), 0);
    assert_int_equal(malloc_info(0, full), 0);
    assert_true(ferror(full));
    fclose(full);
    FILE *unwritable = fopen("/dev/null", "r");
    assert_non_null(unwritable);
    assert_int_equal(malloc_info(0, unwritable), 0);
    fclose(unwritable);
    int result = -1;
    assert_non_null(strstr(info_text(&result), "</malloc>"));
    assert_int_equal(result, 0);
}

static void malloc_stats_writes_to_stderr(void **state) {
    (void)state;
    char path[] = "/tmp/malloc_stats.XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    unlink(path);
    fflush(stderr);
    int saved = dup(STDERR_FILENO);
    assert_true(dup2(fd, STDERR_FILENO) >= 0);
    malloc_stats();
    fflush(stderr);
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    close(saved);
    char text[4096] = {0};
    ssize_t got = pread(fd, text, sizeof text - 1, 0);
    close(fd);
    assert_true(got > 0);
    regex_t figures;
    assert_int_equal(regcomp(&figures, "bytes.*[0-9]|[0-9].*bytes", REG_EXTENDED | REG_NOSUB), 0);
    assert_int_equal(regexec(&figures, text, 0, NULL, 0), 0);
    regfree(&figures);
}

// Programs call mallopt at start and give up when it fails: the known parameters are accepted.
static void mallopt_accepts_what_glibc_does(void **state) {
    (void)state;
    assert_int_equal(mallopt(M_TRIM_THRESHOLD, 256 * 1024), 1);
    assert_int_equal(mallopt(M_TOP_PAD, 0), 1);
    assert_int_equal(mallopt(M_MMAP_THRESHOLD, 256 * 1024), 1);
    assert_int_equal(mallopt(M_MMAP_MAX, 65536), 1);
    assert_int_equal(mallopt(M_MXFAST, 64), 1);
    assert_int_equal(mallopt(M_ARENA_MAX, 4), 1);
    assert_int_equal(mallopt(M_ARENA_TEST, 2), 1);
    assert_int_equal(mallopt(M_CHECK_ACTION, 3), 1);
    assert_int_equal(mallopt(M_PERTURB, 0), 1);
    // Out of range.
    assert_int_equal(mallopt(M_MXFAST, 1 << 20), 0);
    assert_int_equal(mallopt(M_MXFAST, 161), 0);
    assert_int_equal(mallopt(M_MXFAST, -1), 0);
    // Odd values of the others, and parameters there are none of, are no errors.
    assert_int_equal(mallopt(M_TRIM_THRESHOLD, -1), 1);
    assert_int_equal(mallopt(M_ARENA_MAX, -1), 1);
    assert_int_equal(mallopt(12345, 1), 1);
    assert_int_equal(mallopt(-77, 1), 1);
    assert_int_equal(mallopt(M_MXFAST, 0), 1);
    take(1000, 24);
    give_back(1000);
    take(1000, 100);
    give_back(1000);
}

// All of them while other threads allocate, and in a forked child.
static volatile bool stop;

static void *churn(void *argument) {
    uint64_t seed = (uint64_t)(uintptr_t)argument;
    void *kept[64] = {NULL};
    while (!stop) {
        size_t at = random_below(&seed, 64);
        free(kept[at]);
        kept[at] = malloc(random_log_size(&seed, 100000));
    }
    for (int i = 0; i < 64; i++) {
        free(kept[i]);
    }
    return NULL;
}

static void answers_while_others_allocate(void **state) {
    (void)state;
    pthread_t threads[3];
    stop = false;
    for (uintptr_t i = 0; i < 3; i++) {
        start_thread(&threads[i], 0, churn, (void *)(i + 1));
    }
    uint64_t end = now_ms() + 300;
    int result = -1;
    while (now_ms() < end) {
        struct mallinfo2 info = mallinfo2();
        assert_true(info.arena >= info.uordblks);
        malloc_trim(0);
        char *text = info_text(&result);
        assert_int_equal(result, 0);
        assert_non_null(strstr(text, "</malloc>"));
    }
    stop = true;
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
    require_valid_xml(info_text(&result));
}

int main(void) {
    behaviour_require_allocator();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mallinfo2_tells_the_truth),
        cmocka_unit_test(mallinfo2_counts_mapped_blocks),
        cmocka_unit_test(mallinfo2_counts_free_memory),
        cmocka_unit_test(mallinfo_agrees_with_mallinfo2),
        cmocka_unit_test(trim_gives_memory_back),
        cmocka_unit_test(malloc_info_is_valid_xml),
        cmocka_unit_test(malloc_info_refuses_options),
        cmocka_unit_test(malloc_info_survives_a_stream_that_fails),
        cmocka_unit_test(malloc_stats_writes_to_stderr),
        cmocka_unit_test(mallopt_accepts_what_glibc_does),
        cmocka_unit_test(answers_while_others_allocate),
    };
    int failed = cmocka_run_group_tests_name("introspection", tests, NULL, NULL);
    behaviour_require_sound_heap();
    return failed;
}
