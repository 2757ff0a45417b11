// How often the books of `hakmem run` are written: at the ticks of all threads, but not all the time.
#include "isolate.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "config/options.h"
#include "control/report.h"
#include "control/stats.h"
#include "os/os.h"
#include "thread/lifecycle.h"

// Relaxed, both: counted and set by any thread, looked at when they have ended.
static _Atomic(uint64_t) looks;
static _Atomic(uint64_t) look_ticks;  // how long one takes at least

void __real_stats_collect(struct stats *stats);
void __wrap_stats_collect(struct stats *stats);
void __wrap_stats_collect(struct stats *stats) {
    const uint64_t begin = os_ticks();
    atomic_add_relaxed(&looks, 1);
    __real_stats_collect(stats);
    while (os_ticks() - begin < atomic_load_relaxed(&look_ticks)) {
    }
}

static bool is_reporting;
static char directory[] = "/tmp/hakmem-report-pace-XXXXXX";

static void start(void) {
    require(mkdtemp(directory) != NULL);
    lifecycle_start();
    options.report = directory;
    report_start();
    is_reporting = true;
    require(atomic_load_relaxed(&looks) == 1);
}

static void finish(void) {
    DIR *listing = opendir(directory);
    require(listing != NULL);
    unsigned files = 0;
    for (const struct dirent *entry = readdir(listing); entry != NULL; entry = readdir(listing)) {
        char path[sizeof directory + sizeof entry->d_name + 1];
        snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        files += unlink(path) == 0;
    }
    closedir(listing);
    require(rmdir(directory) == 0);
    require(files == 1);
}

#define TICKING (12 * OS_TICKS_PACE)
#define TICKING_MOST (6000 * OS_TICKS_PACE)  // half a minute or more

// On a loud machine a look may take long, and the pause behind it longer than that.
static void *tick_on(void *context) {
    const uint64_t begin = *(const uint64_t *)context;
    uint64_t passed;
    do {
        report_tick();
        passed = os_ticks() - begin;
    } while (passed < TICKING ||
             (is_reporting && passed < TICKING_MOST && atomic_load_relaxed(&looks) < 2));
    return NULL;
}

// Returns how often so many threads, which tick all the time, looked; *passed_ticks: in how long.
static uint64_t tick_for_a_while(unsigned threads, uint64_t *passed_ticks) {
    enum { THREADS_MOST = 8 };
    pthread_t others[THREADS_MOST];
    uint64_t begin = os_ticks();
    atomic_store_relaxed(&looks, 0);
    for (unsigned i = 1; i < threads; i++) {
        require(pthread_create(&others[i], NULL, tick_on, &begin) == 0);
    }
    tick_on(&begin);
    for (unsigned i = 1; i < threads; i++) {
        require(pthread_join(others[i], NULL) == 0);
    }
    *passed_ticks = os_ticks() - begin;
    return atomic_load_relaxed(&looks);
}

static void test_threads_take_turns(void **state) {
    (void)state;
    start();
    for (unsigned threads = 1; threads <= 8; threads *= 8) {
        uint64_t passed_ticks;
        const uint64_t count = tick_for_a_while(threads, &passed_ticks);
        assert_in_range(count, 2, 2 + 2 * passed_ticks / OS_TICKS_PACE);
    }
    finish();
}

static void test_what_takes_long_is_seldom(void **state) {
    (void)state;
    start();
    atomic_store_relaxed(&look_ticks, OS_TICKS_PACE / 4);
    report_refresh();
    uint64_t passed_ticks;
    const uint64_t count = tick_for_a_while(1, &passed_ticks);
    assert_in_range(count, 2, 2 + passed_ticks / (10 * (OS_TICKS_PACE / 4)));
    // Who asks for it at once has it, as early in a process that may be short.
    report_refresh();
    report_refresh();
    assert_int_equal(atomic_load_relaxed(&looks), count + 2);
    finish();
}

// Without a report nobody looks.
static void test_without_a_report(void **state) {
    (void)state;
    lifecycle_start();
    uint64_t passed_ticks;
    assert_int_equal(tick_for_a_while(1, &passed_ticks), 0);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_take_turns),
        cmocka_unit_test(test_what_takes_long_is_seldom),
        cmocka_unit_test(test_without_a_report),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
