// Loads the library given as its argument; with a second argument, so that the library prefers its
// own symbols. Returns what plugin_run returns.
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | (argc > 2 ? RTLD_DEEPBIND : 0));
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 90;
    }
    int (*run)(void) = (int (*)(void))dlsym(library, "plugin_run");
    return run == NULL ? 91 : run();
}
