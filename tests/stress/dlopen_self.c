// A process on glibc's malloc loads libhakmem.so at run time: its thread-local word finds room,
// also when another library has taken most of it; its functions work through dlsym, from several
// threads and in a forked child; the process's own malloc stays glibc's; closing it harms nobody.
#include "behaviour.h"

struct functions {
    void *(*take)(size_t);
    void *(*take_zeroed)(size_t, size_t);
    void *(*resize)(void *, size_t);
    void (*give_back)(void *);
    size_t (*usable)(void *);
    const char *(*version)(void);
    size_t (*check)(void);
};

static struct functions hakmem;

static void *look_up(void *library, const char *name) {
    void *found = dlsym(library, name);
    require_that(found != NULL, "%s is missing", name);
    return found;
}

static void *work(void *argument) {
    uint64_t seed = (uint64_t)(uintptr_t)argument;
    void *kept[100] = {NULL};
    size_t sizes[100];
    for (int i = 0; i < 20000; i++) {
        size_t at = random_below(&seed, 100);
        if (kept[at] != NULL) {
            require(pattern_differs(kept[at], sizes[at], at) == sizes[at]);
            hakmem.give_back(kept[at]);
        }
        sizes[at] = random_log_size(&seed, i % 100 == 0 ? 400000 : 3000);
        kept[at] = i % 2 == 0 ? hakmem.take(sizes[at]) : hakmem.take_zeroed(1, sizes[at]);
        require(kept[at] != NULL && hakmem.usable(kept[at]) >= sizes[at]);
        pattern_fill(kept[at], sizes[at], at);
        if (i % 10 == 0) {
            // glibc's blocks beside them.
            free(malloc(sizes[at]));
        }
    }
    for (int i = 0; i < 100; i++) {
        hakmem.give_back(hakmem.resize(kept[i], 70000));
    }
    return NULL;
}

static void work_in_threads(void) {
    pthread_t threads[3];
    for (uintptr_t i = 0; i < 3; i++) {
        start_thread(&threads[i], 0, work, (void *)(i + 1));
    }
    work((void *)7);
    for (int i = 0; i < 3; i++) {
        require(pthread_join(threads[i], NULL) == 0);
    }
}

int main(int count, char **values) {
    behaviour_require_allocator();
    require_that(count == 3, "usage: dlopen_self LIBHAKMEM LIBTLS_HOG");
    void *hog = dlopen(values[2], RTLD_NOW);
    require_that(hog != NULL, "%s", dlerror());
    char *(*touch)(void) = (char *(*)(void))(uintptr_t)look_up(hog, "tls_hog_touch");
    touch();
    char *own = (char *)malloc(1000);
    require(own != NULL);
    void *library = dlopen(values[1], RTLD_NOW | RTLD_LOCAL);
    require_that(library != NULL, "%s", dlerror());
    hakmem.take = (void *(*)(size_t))(uintptr_t)look_up(library, "malloc");
    hakmem.take_zeroed = (void *(*)(size_t, size_t))(uintptr_t)look_up(library, "calloc");
    hakmem.resize = (void *(*)(void *, size_t))(uintptr_t)look_up(library, "realloc");
    hakmem.give_back = (void (*)(void *))(uintptr_t)look_up(library, "free");
    hakmem.usable = (size_t(*)(void *))(uintptr_t)look_up(library, "malloc_usable_size");
    hakmem.version = (const char *(*)(void))(uintptr_t)look_up(library, "hakmem_version");
    hakmem.check = (size_t(*)(void))(uintptr_t)look_up(library, "hakmem_check");
    require(hakmem.version()[0] != '\0');
    // It is the library's own malloc, not glibc's found through its dependencies.
    require((void *)(uintptr_t)hakmem.take != (void *)(uintptr_t)malloc);
    work_in_threads();
    require(hakmem.check() == 0);
    pid_t child = fork();
    require(child >= 0);
    if (child == 0) {
        work_in_threads();
        exit(hakmem.check() == 0 ? 0 : 1);
    }
    int status = -1;
    require(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    void *survives = hakmem.take(100);
    require(dlclose(library) == 0);
    memset(survives, 1, 100);
    free(own);
    pthread_t thread;
    start_thread(&thread, 0, work, (void *)5);
    require(pthread_join(thread, NULL) == 0);
    return 0;
}
