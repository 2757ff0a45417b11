// dlopen and dlclose, over and over, of a library that allocates; also from threads that end while
// it is loaded. Blocks it handed out outlive it, its handlers of fork do not.
#include "fork_and_wait.h"

enum { CYCLE_COUNT = 400 };

static const char *plugin_path;

static void *cycle(void *argument) {
    size_t bytes = (size_t)(uintptr_t)argument;
    void *plugin = dlopen(plugin_path, RTLD_NOW | RTLD_LOCAL);
    require_that(plugin != NULL, "%s", dlerror());
    void *(*take)(size_t) = (void *(*)(size_t))(uintptr_t)dlsym(plugin, "plugin_take");
    void (*give_back)(void *) = (void (*)(void *))(uintptr_t)dlsym(plugin, "plugin_give_back");
    int (*fork_handlers_run)(void) =
        (int (*)(void))(uintptr_t)dlsym(plugin, "plugin_fork_handlers_run");
    require(take != NULL && give_back != NULL && fork_handlers_run != NULL);
    const bool forks = bytes == 1;
    if (forks) {
        fork_and_wait();
        require(fork_handlers_run() == 2);
    }
    void *kept = take(bytes);
    void *returned = take(bytes);
    require(kept != NULL && returned != NULL);
    pattern_fill(kept, bytes, bytes);
    give_back(returned);
    require(dlclose(plugin) == 0);
    if (forks) {
        fork_and_wait();
    }
    require(pattern_differs(kept, bytes, bytes) == bytes);
    free(kept);
    return NULL;
}

int main(int count, char **values) {
    behaviour_require_allocator();
    require_that(count == 2, "usage: dlclose_cycles PLUGIN");
    plugin_path = values[1];
    size_t early = 0;
    for (uintptr_t i = 0; i < CYCLE_COUNT; i++) {
        if (i % 4 == 3) {
            pthread_t thread;
            start_thread(&thread, 0, cycle, (void *)(i % 50 * 400 + 1));
            require(pthread_join(thread, NULL) == 0);
        } else {
            cycle((void *)(i % 50 * 400 + 1));
        }
        if (i == CYCLE_COUNT / 4) {
            malloc_trim(0);
            early = rss_bytes();
        }
    }
    behaviour_require_sound_heap();
    malloc_trim(0);
    size_t late = rss_bytes();
    behaviour_say("RSS %zu KiB, then %zu KiB", early / KIB, late / KIB);
    require_that(late < early + lost_bytes_max(), "RSS grew by %zu KiB", (late - early) / KIB);
    return 0;
}
