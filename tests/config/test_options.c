// The option parser: precedence, every type, exact warnings, and hostile environments and profiles.
// Each load runs in a child process, since options are loaded once per process.
#include "loading.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void nothing_set(void **state) {
    (void)state;
    LOAD("PATH=/bin", "HAKMEMX=1", "HAKMEM=1", "");
    assert_string_equal(said, "");
    assert_int_equal(seen->options.mode, mode_fast);
    assert_int_equal(seen->options.purge_delay_ms, 500);
    assert_int_equal(seen->options.cache_class_bytes, 256 * 1024);
    assert_int_equal(seen->options.huge_cache_bytes, 64 << 20);
    assert_int_equal(seen->options.refill_blocks, 63);
    assert_string_equal(seen->report, "");
    for (unsigned i = 0; i < OPTION_COUNT; i++) {
        assert_int_equal(seen->origins[i], OPTION_ORIGIN_DEFAULT);
    }
    load_then(NULL, AS_SELF, NULL);
    assert_string_equal(said, "");
}

static void every_type(void **state) {
    (void)state;
    LOAD("HAKMEM_ABORT=no", "HAKMEM_CACHE_HEAP_BYTES=512k", "HAKMEM_PURGE_DELAY_MS=0",
         "HAKMEM_HUGE_PAGES=never", "HAKMEM_REPORT=/some/place", "HAKMEM_RETAIN_SLABS=3");
    assert_string_equal(said, "");
    assert_int_equal(seen->options.abort, 0);
    assert_int_equal(seen->options.cache_heap_bytes, 512 * 1024);
    assert_int_equal(seen->options.purge_delay_ms, 0);
    assert_int_equal(seen->options.huge_pages, huge_pages_never);
    assert_string_equal(seen->report, "/some/place");
    assert_int_equal(seen->options.retain_slabs, 3);
    assert_int_equal(seen->origins[OPTION_retain_slabs], OPTION_ORIGIN_ENVIRONMENT);
}

static void sizes_take_suffixes(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {{"0", 0},
                 {"1", 1},
                 {"7K", 7 << 10},
                 {"7k", 7 << 10},
                 {"3M", 3 << 20},
                 {"2G", UINT64_C(2) << 30},
                 {"1048576", 1 << 20},
                 {"64g", UINT64_C(64) << 30}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char variable[64];
        snprintf(variable, sizeof variable, "HAKMEM_HUGE_CACHE_BYTES=%s", cases[i].text);
        LOAD(variable);
        assert_string_equal(said, "");
        assert_int_equal(seen->options.huge_cache_bytes, cases[i].bytes);
    }
}

static void booleans_take_words(void **state) {
    (void)state;
    static const char *const words[] = {"0", "1", "false", "TRUE", "No", "yes", "OFF", "on"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char variable[64];
        snprintf(variable, sizeof variable, "HAKMEM_ZERO_ON_FREE=%s", words[i]);
        LOAD(variable);
        assert_string_equal(said, "");
        assert_int_equal(seen->options.zero_on_free, i % 2);
        assert_int_equal(seen->origins[OPTION_zero_on_free], OPTION_ORIGIN_ENVIRONMENT);
    }
}

static void mode_presets_lie_below_every_source(void **state) {
    (void)state;
    LOAD("HAKMEM_PURGE_DELAY_MS=70", "HAKMEM_MODE=lean");
    assert_string_equal(said, "");
    assert_int_equal(seen->options.mode, mode_lean);
    assert_int_equal(seen->options.purge_delay_ms, 70);
    assert_int_equal(seen->options.slab_purge_delay_ms, 50);
    assert_int_equal(seen->options.retain_slabs, 0);
    assert_int_equal(seen->origins[OPTION_mode], OPTION_ORIGIN_ENVIRONMENT);
    assert_int_equal(seen->origins[OPTION_purge_delay_ms], OPTION_ORIGIN_ENVIRONMENT);
    assert_int_equal(seen->origins[OPTION_slab_purge_delay_ms], OPTION_ORIGIN_MODE);

    LOAD("HAKMEM_CONF=mode:hardened");
    assert_int_equal(seen->options.zero_on_free, 1);
    assert_int_equal(seen->options.quarantine_blocks, 256);
    assert_int_equal(seen->options.guard_gaps, 1);
    assert_int_equal(seen->options.random_refill, 1);
    assert_int_equal(seen->options.immediate_double_free, 1);
}

static void precedence_of_all_sources(void **state) {
    (void)state;
    char *file = profile("# tuned for a small machine\r\n"
                         "\n"
                         "  mode = lean\r\n"
                         "retain_slabs=2\n"
                         "decay_interval_ms = 30\n"
                         "cache_start_bytes=2K");
    LOAD("HAKMEM_CACHE_START_BYTES=4K", file,
         "HAKMEM_CONF=decay_interval_ms:40,cache_start_bytes:3K");
    assert_string_equal(said, "");
    assert_int_equal(seen->options.mode, mode_lean);
    assert_int_equal(seen->options.purge_delay_ms, 50);
    assert_int_equal(seen->options.retain_slabs, 2);
    assert_int_equal(seen->options.decay_interval_ms, 40);
    assert_int_equal(seen->options.cache_start_bytes, 4096);
    assert_int_equal(seen->options.verbose, 0);
    assert_int_equal(seen->origins[OPTION_verbose], OPTION_ORIGIN_DEFAULT);
    assert_int_equal(seen->origins[OPTION_purge_delay_ms], OPTION_ORIGIN_MODE);
    assert_int_equal(seen->origins[OPTION_retain_slabs], OPTION_ORIGIN_PROFILE);
    assert_int_equal(seen->origins[OPTION_decay_interval_ms], OPTION_ORIGIN_CONF);
    assert_int_equal(seen->origins[OPTION_cache_start_bytes], OPTION_ORIGIN_ENVIRONMENT);

    // The mode of the highest source counts, and presets of the others leave nothing behind.
    LOAD(file, "HAKMEM_MODE=fast");
    assert_int_equal(seen->options.mode, mode_fast);
    assert_int_equal(seen->options.purge_delay_ms, 500);
}

static void first_of_equal_variables_counts(void **state) {
    (void)state;
    LOAD("HAKMEM_CHECK=1", "HAKMEM_CHECK=2");
    assert_int_equal(seen->options.check, 1);
}

static void secure_ignores_the_environment(void **state) {
    (void)state;
    char *envp[] = {"HAKMEM_CHECK=1",           "HAKMEM_VERBOSE=1", "HAKMEM_NONSENSE=1",
                    "HAKMEM_PROFILE=/dev/zero", "HAKMEM_CONF=x",    NULL};
    load_then(envp, AS_SECURE, NULL);
    assert_string_equal(said, "");
    assert_int_equal(seen->options.check, 0);
    assert_int_equal(seen->origins[OPTION_check], OPTION_ORIGIN_DEFAULT);
}

static void exact_warnings(void **state) {
    (void)state;
    static const struct {
        char *variable;
        const char *warning;
    } cases[] = {
        {"HAKMEM_FOO=1", "hakmem: option HAKMEM_FOO: unknown, ignored\n"},
        {"HAKMEM_mode=lean", "hakmem: option HAKMEM_mode: unknown, ignored\n"},
        {"HAKMEM_=1", "hakmem: option HAKMEM_: unknown, ignored\n"},
        {"HAKMEM_PURGE_DELAY_MS=12x",
         "hakmem: option HAKMEM_PURGE_DELAY_MS: value '12x' is not a number "
         "of milliseconds (0..3600000), kept 500\n"},
        {"HAKMEM_PURGE_DELAY_MS=",
         "hakmem: option HAKMEM_PURGE_DELAY_MS: value '' is not a number of "
         "milliseconds (0..3600000), kept 500\n"},
        {"HAKMEM_PURGE_DELAY_MS=-1",
         "hakmem: option HAKMEM_PURGE_DELAY_MS: value '-1' is not a number "
         "of milliseconds (0..3600000), kept 500\n"},
        {"HAKMEM_PURGE_DELAY_MS= 1",
         "hakmem: option HAKMEM_PURGE_DELAY_MS: value ' 1' is not a number "
         "of milliseconds (0..3600000), kept 500\n"},
        {"HAKMEM_PURGE_DELAY_MS=3600001",
         "hakmem: option HAKMEM_PURGE_DELAY_MS: value '3600001' is not a number "
         "of milliseconds (0..3600000), kept 500\n"},
        {"HAKMEM_PURGE_DELAY_MS=18446744073709551617",
         "hakmem: option HAKMEM_PURGE_DELAY_MS: value '18446744073709551617' is not a number "
         "of milliseconds (0..3600000), kept 500\n"},
        {"HAKMEM_CHECK=3",
         "hakmem: option HAKMEM_CHECK: value '3' is not a number (0..2), kept 0\n"},
        {"HAKMEM_REFILL_BLOCKS=0", "hakmem: option HAKMEM_REFILL_BLOCKS: value '0' is not a number "
                                   "of blocks (1..63), kept 63\n"},
        {"HAKMEM_CACHE_HEAP_BYTES=17179869184G",
         "hakmem: option HAKMEM_CACHE_HEAP_BYTES: value '17179869184G' is not a number of bytes "
         "(0..1073741824), kept 4194304\n"},
        {"HAKMEM_CACHE_HEAP_BYTES=K",
         "hakmem: option HAKMEM_CACHE_HEAP_BYTES: value 'K' is not a number "
         "of bytes (0..1073741824), kept 4194304\n"},
        {"HAKMEM_CACHE_HEAP_BYTES=1KK",
         "hakmem: option HAKMEM_CACHE_HEAP_BYTES: value '1KK' is not a number "
         "of bytes (0..1073741824), kept 4194304\n"},
        {"HAKMEM_ABORT=2", "hakmem: option HAKMEM_ABORT: value '2' is not 0 or 1, kept 1\n"},
        {"HAKMEM_MODE=quick", "hakmem: option HAKMEM_MODE: value 'quick' is not one of fast, lean, "
                              "hardened, research, kept fast\n"},
        {"HAKMEM_MODE=\x1b[2J\n",
         "hakmem: option HAKMEM_MODE: value '\\x1b[2J\\x0a' is not one of fast, "
         "lean, hardened, research, kept fast\n"},
        {"HAKMEM_CONF=check",
         "hakmem: option check in HAKMEM_CONF: has no ':' and value, ignored\n"},
        {"HAKMEM_CONF=,,check:9,",
         "hakmem: option check in HAKMEM_CONF: value '9' is not a number (0..2), kept 0\n"},
        {"HAKMEM_CONF=profile:/x", "hakmem: option profile in HAKMEM_CONF: unknown, ignored\n"},
        {"HAKMEM_PROFILE=/nonexistent/file",
         "hakmem: profile '/nonexistent/file' does not exist; the default is used\n"},
        {"HAKMEM_PROFILE=/tmp",
         "hakmem: profile '/tmp' is not a regular file; the default is used\n"},
        {"HAKMEM_PROFILE=/dev/zero",
         "hakmem: profile '/dev/zero' is not a regular file; the default is used\n"},
        {"HAKMEM_PROFILE=", ""},
        {"HAKMEM_CONF=", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        LOAD(cases[i].variable);
        assert_string_equal(said, cases[i].warning);
        for (unsigned id = 0; id < OPTION_COUNT; id++) {
            assert_int_equal(seen->origins[id], OPTION_ORIGIN_DEFAULT);
        }
    }
}

static void warning_names_the_value_in_force(void **state) {
    (void)state;
    LOAD("HAKMEM_PURGE_DELAY_MS=x", "HAKMEM_MODE=lean");
    assert_string_equal(said, "hakmem: option HAKMEM_PURGE_DELAY_MS: value 'x' is not a number of "
                              "milliseconds (0..3600000), kept 50\n");
    LOAD("HAKMEM_PURGE_DELAY_MS=x", "HAKMEM_CONF=purge_delay_ms:7");
    assert_string_equal(said, "hakmem: option HAKMEM_PURGE_DELAY_MS: value 'x' is not a number of "
                              "milliseconds (0..3600000), kept 7\n");
}

static void hostile_values(void **state) {
    (void)state;
    static char huge[100 * 1024 + 64];
    static const char *const starts[] = {
        "HAKMEM_PURGE_DELAY_MS=", "HAKMEM_MODE=", "HAKMEM_REPORT=", "HAKMEM_ABORT=",
        "HAKMEM_CHECK=",          "HAKMEM_CONF=", "HAKMEM_",        "HAKMEM_CACHE_CLASS_BYTES="};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        for (const char *fill = "9a,:=-\xff"; *fill != '\0'; fill++) {
            memset(huge, *fill, sizeof huge - 1);
            memcpy(huge, starts[i], strlen(starts[i]));
            LOAD(huge);
            assert_true(line_count(said) <= 9);
            assert_true(strlen(said) < 4096);
            assert_int_equal(seen->options.purge_delay_ms, 500);
            assert_int_equal(seen->options.mode, mode_fast);
            assert_string_equal(seen->report, "");
        }
    }
    // The longest path that fits, and one byte more.
    memset(huge, 'r', sizeof huge);
    memcpy(huge, "HAKMEM_REPORT=", 14);
    huge[14 + 4095] = '\0';
    LOAD(huge);
    assert_string_equal(said, "");
    assert_int_equal(strlen(seen->report), 4095);
    huge[14 + 4095] = 'r';
    huge[14 + 4096] = '\0';
    LOAD(huge);
    assert_non_null(strstr(said, "rrr...' is not a path of at most 4095 bytes, kept \n"));
}

static void flood_of_unknown_names_is_cut(void **state) {
    (void)state;
    enum { VARIABLES = 2000 };
    static char names[VARIABLES][32];
    static char *envp[VARIABLES + 2];
    for (int i = 0; i < VARIABLES; i++) {
        snprintf(names[i], sizeof names[i], "HAKMEM_X%d=1", i);
        envp[i] = names[i];
    }
    envp[VARIABLES] = "HAKMEM_CHECK=2";  // what is right still counts
    load_then(envp, AS_SELF, NULL);
    assert_int_equal(line_count(said), 9);
    assert_int_equal(seen->options.check, 2);
}

static void other_names_are_those_of_options(void **state) {
    (void)state;
    LOAD("HAKMEM_SS_OS_STATS=1", "HAKMEM_DEBUG_TIMING=yes");
    assert_string_equal(said, "");
    assert_int_equal(seen->options.stats_at_exit, 1);
    assert_int_equal(seen->options.research, 1);
    LOAD("HAKMEM_CONF=ss_os_stats:1");
    assert_int_equal(seen->options.stats_at_exit, 1);
    LOAD("HAKMEM_DEBUG_TIMING=2");
    assert_string_equal(said,
                        "hakmem: option HAKMEM_DEBUG_TIMING: value '2' is not 0 or 1, kept 0\n");
}

static char *set_name;
static char *set_value;

static void set_one(void) {
    seen->set_result = options_set(set_name, set_value);
}

static void set_at_run_time(void **state) {
    (void)state;
    static struct {
        char *name;
        char *value;
        bool result;
    } cases[] = {
        {"purge_delay_ms", "10", true},
        {"purge_delay_ms", "10x", false},
        {"mode", "lean", false},
        {"report", "/x", false},
        {"unknown", "1", false},
        {"", "", false},
        {NULL, "1", false},
        {"check", NULL, false},
        {"check", "2", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *envp[] = {"HAKMEM_PURGE_DELAY_MS=90", NULL};
        set_name = cases[i].name;
        set_value = cases[i].value;
        load_then(envp, AS_SELF, set_one);
        assert_string_equal(said, "");
        assert_int_equal(seen->set_result, cases[i].result);
        bool purge = cases[i].result && strcmp(cases[i].name, "purge_delay_ms") == 0;
        assert_int_equal(seen->options.purge_delay_ms, purge ? 10 : 90);
        assert_int_equal(seen->origins[OPTION_purge_delay_ms],
                         purge ? OPTION_ORIGIN_RUNTIME : OPTION_ORIGIN_ENVIRONMENT);
    }
}

static void get_shows_what_set_takes(void **state) {
    (void)state;
    struct text value;
    text_clear(&value);
    assert_true(options_get("mode", &value));
    assert_int_equal(value.count, 4);
    assert_memory_equal(value.bytes, "fast", 4);
    text_clear(&value);
    assert_true(options_get("cache_heap_bytes", &value));
    assert_memory_equal(value.bytes, "4194304", 7);
    text_clear(&value);
    assert_false(options_get("nothing", &value));
    assert_false(options_get(NULL, &value));
    assert_int_equal(value.count, 0);
}

static void verbose_prints_every_option_with_its_origin(void **state) {
    (void)state;
    LOAD("HAKMEM_VERBOSE=1", "HAKMEM_MODE=lean", "HAKMEM_CONF=check:1", "HAKMEM_REPORT=/r\x01");
    assert_int_equal(line_count(said), OPTION_COUNT);
    assert_non_null(
        strstr(said, "hakmem: mode                     lean            (environment)\n"));
    assert_non_null(strstr(said, "hakmem: purge_delay_ms           50              (mode)\n"));
    assert_non_null(
        strstr(said, "hakmem: check                    1               (HAKMEM_CONF)\n"));
    assert_non_null(strstr(said, "hakmem: abort                    1               (default)\n"));
    assert_non_null(
        strstr(said, "hakmem: report                   /r\\x01          (environment)\n"));
}

// Random environments, made of pieces that come close to being right: no value may leave its range.
static void random_environments(void **state) {
    (void)state;
    static const char *const pieces[] = {"HAKMEM_",
                                         "CONF",
                                         "PROFILE",
                                         "MODE",
                                         "=",
                                         ":",
                                         ",",
                                         "mode",
                                         "lean",
                                         "check",
                                         "1",
                                         "2",
                                         "-",
                                         "18446744073709551616",
                                         "K",
                                         "G",
                                         "\n",
                                         "purge_delay_ms",
                                         "0",
                                         "9999",
                                         "cache_heap_bytes",
                                         "\t",
                                         "HAKMEM_CONF=",
                                         "refill_blocks",
                                         "\xc3\xa9"};
    static const struct {
        uint64_t min;
        uint64_t max;
        bool is_number;
    } ranges[] = {
#define OPTION(name, type, initial, low, high, unit, when, help) \
    {(low), (high), OPTION_TYPE_##type != OPTION_TYPE_STRING},
#define CHOICE(option, name, number, help)
#define MODE(mode, option, value)
#include "config/options.def"
    };
    uint64_t random = 20261121;
    print_message("seed %llu\n", (unsigned long long)random);
    for (int round = 0; round < 300; round++) {
        static char variables[8][256];
        char *envp[9] = {NULL};
        for (int v = 0; v < 8; v++) {
            variables[v][0] = '\0';
            strcat(variables[v], v % 2 ? "HAKMEM_CONF=" : "HAKMEM_");
            for (int piece = 0; piece < 7; piece++) {
                random = random * 6364136223846793005u + 1442695040888963407u;
                strcat(variables[v], pieces[(random >> 33) % (sizeof pieces / sizeof *pieces)]);
            }
            envp[v] = variables[v];
        }
        load_then(envp, AS_SELF, NULL);
        uint64_t value;
        for (unsigned i = 0; i < OPTION_COUNT; i++) {
            memcpy(&value, (char *)&seen->options + i * sizeof value, sizeof value);
            assert_true(!ranges[i].is_number || (value >= ranges[i].min && value <= ranges[i].max));
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_set),
        cmocka_unit_test(every_type),
        cmocka_unit_test(sizes_take_suffixes),
        cmocka_unit_test(booleans_take_words),
        cmocka_unit_test(mode_presets_lie_below_every_source),
        cmocka_unit_test(precedence_of_all_sources),
        cmocka_unit_test(first_of_equal_variables_counts),
        cmocka_unit_test(secure_ignores_the_environment),
        cmocka_unit_test(exact_warnings),
        cmocka_unit_test(warning_names_the_value_in_force),
        cmocka_unit_test(hostile_values),
        cmocka_unit_test(flood_of_unknown_names_is_cut),
        cmocka_unit_test(other_names_are_those_of_options),
        cmocka_unit_test(set_at_run_time),
        cmocka_unit_test(get_shows_what_set_takes),
        cmocka_unit_test(verbose_prints_every_option_with_its_origin),
        cmocka_unit_test(random_environments),
    };
    return cmocka_run_group_tests(tests, loading_setup, loading_teardown);
}
