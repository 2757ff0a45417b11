// Profile files: what they may say, and that they count as a whole or not at all.
#include "loading.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "space/size_class.h"

// Each of these lines makes a profile worthless, whatever stands before and behind it.
static void profiles_count_whole_or_not_at_all(void **state) {
    (void)state;
    static const struct {
        const char *line;
        const char *told;
    } cases[] = {
        {"foo=1", "foo '1' is no option"},
        {"check=7", "check '7' is not a number (0..2)"},
        {"retain_slabs=3", "retain_slabs '3' is there twice"},
        {"nonsense", "nonsense has no '=' and value"},
        {"=5", " '5' is no option"},
        {"check=\x1b[2J", "check '\\x1b[2J' is not a number (0..2)"},
        {"ss_os_stats=1", "ss_os_stats '1' is not for a profile to set"},
        {"report=/tmp", "report '/tmp' is not for a profile to set"},
        {"snapshot_directory=/tmp", "snapshot_directory '/tmp' is not for a profile to set"},
        {"leaks_exit_status=3", "leaks_exit_status '3' is not for a profile to set"},
        {"verbose=1", "verbose '1' is not for a profile to set"},
        {"profile_format=2", "profile_format '2' is not 1, the format that this library reads"},
        {"hakmem_version=9.9.9",
         "hakmem_version '9.9.9' is not " HAKMEM_VERSION ", this library's version"},
        {"program_build_id=abc", "program_build_id 'abc' is no build-id"},
        {"program_build_id=0123456789",
         "program_build_id '0123456789' is not this program's build-id"},
        {"size_class=17", "size_class '17' is not a multiple of 16 bytes"},
        {"size_class=0", "size_class '0' is not a size of 16 to 65536 bytes"},
        {"size_class=65552", "size_class '65552' is not a size of 16 to 65536 bytes"},
        {"size_class=16:0", "size_class '16:0' does not have 1 to 32 pages to a slab"},
        {"size_class=4096:33", "size_class '4096:33' does not have 1 to 32 pages to a slab"},
        {"size_class=16:2", "size_class '16:2' has more than 4096 blocks in a slab"},
        {"size_class=48\nsize_class=48", "size_class '48' is not above the class before it"},
        {"size_class=48\nretain_slabs=1", "retain_slabs '1' is there twice"},
        {"size_class=48", "size_class is the last class, which is to be 65536"},
        {"prewarm=70000:1", "prewarm '70000:1' is not for a size of 1 to 65536 bytes"},
        {"prewarm=16:4097", "prewarm '16:4097' is not for 1 to 4096 blocks"},
        {"prewarm=16:", "prewarm '16:' is not for 1 to 4096 blocks"},
        {"prewarm=4096:1025", "prewarm '4096:1025' makes it more than 4194304 bytes to have ready"},
        {"prewarm=4096:1024\nprewarm=16:1",
         "prewarm '16:1' makes it more than 4194304 bytes to have ready"},
        {"prewarm=32:10\nprewarm=32:5", "prewarm '32:5' is for the size class of a line before it"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256], expected[512];
        snprintf(text, sizeof text, "mode=lean\nretain_slabs=7\n%s\n# end", cases[i].line);
        LOAD(profile(text));
        const unsigned line = 3 + (strchr(cases[i].line, '\n') != NULL);
        snprintf(expected, sizeof expected,
                 "hakmem: profile '%s' line %u: %s; the default is used\n", profile_path, line,
                 cases[i].told);
        assert_string_equal(said, expected);
        for (unsigned id = 0; id < OPTION_COUNT; id++) {
            assert_int_equal(seen->origins[id], OPTION_ORIGIN_DEFAULT);
        }
        assert_int_equal(seen->options.mode, mode_fast);
    }
}

static void profiles_lower_no_check_and_lift_no_limit(void **state) {
    (void)state;
    static const struct {
        char *mode;
        const char *line;
        bool counts;
    } cases[] = {
        {"HAKMEM_MODE=fast", "abort=0", false},
        {"HAKMEM_MODE=fast", "abort=1", true},
        {"HAKMEM_MODE=fast", "exit_check=0", false},
        {"HAKMEM_MODE=fast", "watched_operations=15", false},
        {"HAKMEM_MODE=fast", "watched_operations=16", true},
        {"HAKMEM_MODE=fast", "quarantine_blocks=5", true},
        {"HAKMEM_MODE=hardened", "quarantine_blocks=5", false},
        {"HAKMEM_MODE=hardened", "zero_on_free=0", false},
        {"HAKMEM_MODE=hardened", "guard_gaps=0", false},
        {"HAKMEM_MODE=hardened", "slack_check=0", false},
        {"HAKMEM_MODE=hardened", "immediate_double_free=0", false},
        {"HAKMEM_MODE=hardened", "random_refill=0", false},
        {"HAKMEM_MODE=hardened", "mode=fast", true},  // the environment's mode stays
        {"HAKMEM_MODE=fast", "cache_total_bytes=33M", false},
        {"HAKMEM_MODE=fast", "cache_total_bytes=32M", true},
        {"HAKMEM_MODE=lean", "cache_total_bytes=32M", false},
        {"HAKMEM_MODE=fast", "huge_cache_bytes=65M", false},
        {"HAKMEM_MODE=fast", "excess_bytes=32M", true},
        {"HAKMEM_MODE=fast", "excess_bytes=33M", false},
        {"HAKMEM_MODE=lean", "excess_bytes=5M", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[128];
        snprintf(text, sizeof text, "%s\nretain_slabs=7\n", cases[i].line);
        LOAD(cases[i].mode, profile(text));
        assert_int_equal(line_count(said), !cases[i].counts);
        assert_int_equal(seen->options.retain_slabs == 7, cases[i].counts);
        if (strcmp(cases[i].mode, "HAKMEM_MODE=hardened") == 0) {
            assert_int_equal(seen->options.mode, mode_hardened);
            assert_int_equal(seen->options.zero_on_free, 1);
            assert_int_equal(seen->options.quarantine_blocks, 256);
        }
    }
    // Compared with the mode's, whatever the environment sets beside it.
    LOAD("HAKMEM_CACHE_TOTAL_BYTES=64M", profile("cache_total_bytes=33M"));
    assert_int_equal(line_count(said), 1);
    // What the environment says itself stays above all.
    LOAD("HAKMEM_ABORT=0", "HAKMEM_CACHE_TOTAL_BYTES=1M", profile("cache_total_bytes=2M\nabort=1"));
    assert_string_equal(said, "");
    assert_int_equal(seen->options.abort, 0);
    assert_int_equal(seen->options.cache_total_bytes, 1 << 20);
}

// Blocks are counted as large as the table makes them, wherever the table stands.
static void prewarm_counts_blocks(void **state) {
    (void)state;
    static const struct {
        bool asks_the_library;
        const char *text;
        const char *told;
    } cases[] = {
        {false, "size_class=65536\nprewarm=1:64", NULL},
        {false, "size_class=65536\nprewarm=1:65",
         "2: prewarm '1:65' makes it more than 4194304 bytes to have ready"},
        {false, "prewarm=1:4096\nsize_class=65536",
         "1: prewarm '1:4096' makes it more than 4194304 bytes to have ready"},
        {false, "prewarm=33:1\nsize_class=32\nprewarm=40:1\nsize_class=65536",
         "3: prewarm '40:1' is for the size class of a line before it"},
        {false, "prewarm=32:1\nsize_class=32\nprewarm=40:1\nsize_class=65536", NULL},
        {true, "prewarm=4097:960", NULL},  // 4368 bytes each
        {true, "prewarm=4097:961",
         "1: prewarm '4097:961' makes it more than 4194304 bytes to have ready"},
        {true, "prewarm=1:1\nprewarm=16:1",
         "2: prewarm '16:1' is for the size class of a line before it"},
        {true, "prewarm=16:1\nprewarm=17:1", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char expected[512] = "";
        profile_block_bytes = cases[i].asks_the_library ? size_class_block_bytes : NULL;
        LOAD(profile(cases[i].text));
        if (cases[i].told != NULL) {
            snprintf(expected, sizeof expected,
                     "hakmem: profile '%s' line %s; the default is used\n", profile_path,
                     cases[i].told);
        }
        assert_string_equal(said, expected);
    }
    profile_block_bytes = NULL;
}

// It counts and records, which is no matter of tuning; the other modes are.
static void a_profile_may_set_any_mode_but_research(void **state) {
    (void)state;
    LOAD(profile("retain_slabs=7\nmode=research"));
    assert_non_null(
        strstr(said, "line 2: mode 'research' is not for a profile to set; the default"));
    assert_int_equal(seen->options.mode, mode_fast);
    assert_int_equal(seen->options.research, 0);
    assert_int_equal(seen->origins[OPTION_retain_slabs], OPTION_ORIGIN_DEFAULT);
    LOAD(profile("mode=hardened"));
    assert_string_equal(said, "");
    assert_int_equal(seen->options.mode, mode_hardened);
}

static void comments_and_blanks(void **state) {
    (void)state;
    LOAD(profile("#a\n\n \t\r\n retain_slabs = 7 # seven\r\n#\nprofile_format=1\n"
                 "hakmem_version=" HAKMEM_VERSION "\nsize_class=32#x\nsize_class= 1K : 2 \n"
                 "size_class=65536\nprewarm=32:10\nprewarm=33:5"));
    assert_string_equal(said, "");
    assert_int_equal(seen->options.retain_slabs, 7);
    assert_int_equal(seen->profile.class_count, 3);
    assert_int_equal(seen->profile.classes[1].block_bytes, 1024);
    assert_int_equal(seen->profile.classes[1].slab_pages, 2);
    assert_int_equal(seen->profile.classes[2].slab_pages, 0);
    assert_int_equal(seen->profile.prewarm_count, 2);
    assert_int_equal(seen->profile.prewarm[0].count, 10);
    LOAD("HAKMEM_RETAIN_SLABS=1");
    assert_int_equal(seen->profile.class_count, 0);
}

static void hostile_profiles(void **state) {
    (void)state;
    char path[160];
    char variable[200];
    static char big[70 * 1024];

    // 64 KiB is taken, one byte more is not, though it holds a valid setting.
    memset(big, '\n', sizeof big);
    memcpy(big, "check=1", 7);
    char *file = profile("");
    file_write(profile_path, big, 65536);
    LOAD(file);
    assert_string_equal(said, "");
    assert_int_equal(seen->options.check, 1);
    file_write(profile_path, big, 65537);
    LOAD(file);
    assert_non_null(strstr(said, "is larger than 65536 bytes; the default is used\n"));
    assert_int_equal(line_count(said), 1);
    assert_int_equal(seen->options.check, 0);

    // Binary.
    file_write(profile_path, "check=1\n\0\0", 10);
    LOAD(file);
    assert_non_null(strstr(said, "is not a text file; the default is used\n"));
    assert_int_equal(seen->options.check, 0);

    // 64 KiB of one line, and of thousands of wrong lines: one line of warning.
    memset(big, 'a', 65536);
    file_write(profile_path, big, 65536);
    LOAD(file);
    assert_int_equal(line_count(said), 1);
    for (size_t i = 0; i + 2 <= 65536; i += 2) {
        memcpy(big + i, "x\n", 2);
    }
    file_write(profile_path, big, 65536);
    LOAD(file);
    assert_int_equal(line_count(said), 1);

    // What is read there first is not mapped.
    LOAD("HAKMEM_PROFILE=/proc/self/mem");
    assert_string_equal(
        said, "hakmem: profile '/proc/self/mem' cannot be read (error 5); the default is used\n");

    // A FIFO without a writer must not be waited for.
    snprintf(path, sizeof path, "%s/fifo", directory);
    snprintf(variable, sizeof variable, "HAKMEM_PROFILE=%s", path);
    assert_int_equal(mkfifo(path, 0600), 0);
    LOAD(variable);
    assert_non_null(strstr(said, "fifo' is not a regular file; the default is used\n"));
    unlink(path);

    // A link to itself, and a name longer than any path.
    assert_int_equal(symlink(path, path), 0);
    LOAD(variable);
    assert_non_null(strstr(said, "cannot be opened (error 40); the default is used\n"));
    unlink(path);
    static char long_name[16 * 1024] = "HAKMEM_PROFILE=";
    memset(long_name + 15, 'p', sizeof long_name - 16);
    LOAD(long_name);
    assert_non_null(strstr(said, "ppp...' is too long for a path; the default is used\n"));

    // Unreadable: checked as a user who may not read it.
    file = profile("check=1\n");
    assert_int_equal(chmod(profile_path, 0), 0);
    assert_int_equal(chmod(directory, 0755), 0);
    char *envp[] = {file, NULL};
    load_then(envp, AS_NOBODY, NULL);
    assert_non_null(strstr(said, "cannot be opened (error 13); the default is used\n"));
    assert_int_equal(seen->options.check, 0);
    unlink(profile_path);
}

static char library[PROFILE_PATH_MAX];

static bool find_library(char *path, size_t capacity) {
    return snprintf(path, capacity, "%s", library) < (int)capacity;
}

static bool find_nothing(char *path, size_t capacity) {
    (void)path, (void)capacity;
    return false;
}

// A folder of profiles two above that of the library, as in a build tree.
static void names_are_looked_for_beside_the_library(void **state) {
    (void)state;
    char folder[128], build[128], release[160], path[160];
    snprintf(folder, sizeof folder, "%s/profiles", directory);
    snprintf(path, sizeof path, "%s/web-1.2.profile", folder);
    snprintf(library, sizeof library, "%s/build/release/libhakmem.so", directory);
    snprintf(build, sizeof build, "%s/build", directory);
    snprintf(release, sizeof release, "%s/release", build);
    assert_int_equal(mkdir(folder, 0700) | mkdir(build, 0700) | mkdir(release, 0700), 0);
    file_write(path, "retain_slabs=7\n", 15);
    profile_find_library = find_library;
    LOAD("HAKMEM_PROFILE=web-1.2");
    assert_string_equal(said, "");
    assert_int_equal(seen->options.retain_slabs, 7);
    file_write(path, "retain_slabs=x\n", 15);
    LOAD("HAKMEM_PROFILE=web-1.2");
    assert_string_equal(said,
                        "hakmem: profile 'web-1.2' line 1: retain_slabs 'x' is not a number of "
                        "slabs (0..1024); the default is used\n");
    profile_find_library = find_nothing;
    LOAD("HAKMEM_PROFILE=web-1.2");
    assert_string_equal(said, "hakmem: profile 'web-1.2' is not installed; the default is used\n");
    profile_find_library = NULL;
    LOAD("HAKMEM_PROFILE=web-1.2");
    assert_string_equal(said, "hakmem: profile 'web-1.2' is not installed; the default is used\n");
    unlink(path);
    assert_int_equal(rmdir(folder) | rmdir(release) | rmdir(build), 0);
}

// Of no path is more made than there is room for.
static void names_beside_a_library_with_a_long_path(void **state) {
    (void)state;
    char variable[32 + PROFILE_NAME_MAX] = "HAKMEM_PROFILE=";
    memset(variable + strlen(variable), 'n', PROFILE_NAME_MAX);
    profile_find_library = find_library;
    for (size_t i = PROFILE_PATH_MAX - 160; i < PROFILE_PATH_MAX; i++) {
        memset(library, '/', i);
        strcpy(library + i - 2, "/l");
        LOAD(variable);
        assert_non_null(strstr(said, "' is not installed; the default is used\n"));
    }
    profile_find_library = NULL;
}

static void names_that_are_none(void **state) {
    (void)state;
    static const char *const names[] = {"..", ".hidden", "a b", "a\n", "%s", "\xc3\xa9"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char variable[64];
        snprintf(variable, sizeof variable, "HAKMEM_PROFILE=%s", names[i]);
        LOAD(variable);
        assert_non_null(
            strstr(said, "' is no name of a profile, nor a path; the default is used\n"));
        assert_int_equal(line_count(said), 1);
    }
}

static const char *refuse(const struct profile *asked) {
    return asked->class_count == 1 ? "is refused here" : NULL;
}

// Whoever is to take a profile may refuse it as a whole.
static void refused_when_it_cannot_be_taken(void **state) {
    (void)state;
    char expected[256];
    profile_accept = refuse;
    LOAD(profile("retain_slabs=7\nmode=lean\nsize_class=65536"));
    snprintf(expected, sizeof expected,
             "hakmem: profile '%s' is refused here; the default is used\n", profile_path);
    assert_string_equal(said, expected);
    assert_int_equal(seen->origins[OPTION_retain_slabs], OPTION_ORIGIN_DEFAULT);
    assert_int_equal(seen->options.mode, mode_fast);
    assert_int_equal(seen->profile.class_count, 0);
    LOAD(profile("retain_slabs=7\nsize_class=32\nsize_class=65536"));
    assert_string_equal(said, "");
    assert_int_equal(seen->profile.class_count, 2);
    profile_accept = NULL;
}

// Its options have their origin; of its size classes this line alone tells.
static void verbose_names_the_profile_in_force(void **state) {
    (void)state;
    char expected[512];
    LOAD(profile("size_class=48\nsize_class=65536\nprewarm=48:5\n"), "HAKMEM_VERBOSE=1");
    const char *line = strstr(said, "hakmem: profile ");
    assert_non_null(line);
    snprintf(expected, sizeof expected, "%-32s %s (2 size classes, 1 made ready)\n",
             "hakmem: profile", profile_path);
    assert_string_equal(line, expected);
    LOAD(profile("size_class=48\n"), "HAKMEM_VERBOSE=1");
    assert_null(strstr(said, "made ready"));
    LOAD("HAKMEM_VERBOSE=1");
    assert_null(strstr(said, "made ready"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(profiles_count_whole_or_not_at_all),
        cmocka_unit_test(profiles_lower_no_check_and_lift_no_limit),
        cmocka_unit_test(prewarm_counts_blocks),
        cmocka_unit_test(a_profile_may_set_any_mode_but_research),
        cmocka_unit_test(comments_and_blanks),
        cmocka_unit_test(hostile_profiles),
        cmocka_unit_test(names_are_looked_for_beside_the_library),
        cmocka_unit_test(names_beside_a_library_with_a_long_path),
        cmocka_unit_test(names_that_are_none),
        cmocka_unit_test(refused_when_it_cannot_be_taken),
        cmocka_unit_test(verbose_names_the_profile_in_force),
    };
    return cmocka_run_group_tests(tests, loading_setup, loading_teardown);
}
