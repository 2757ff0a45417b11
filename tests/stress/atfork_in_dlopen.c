// pthread_atfork asks the loader for nothing: another thread may have its lock and wait for this one, and what dlerror()
// has to tell is the program's.
#include <dlfcn.h>

#include "fork_and_wait.h"

int main(int argc, char **argv) {
    require(argc == 2);
    behaviour_require_allocator();
    alarm(20);
    void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    require_that(plugin != NULL, "%s", dlerror());
    require(dlopen("/no/such/library.so", RTLD_NOW) == NULL);
    require(pthread_atfork(NULL, NULL, NULL) == 0);
    require(dlerror() != NULL);
    int (*handled)(void) = (int (*)(void))(uintptr_t)dlsym(plugin, "atfork_plugin_handled");
    require(handled != NULL && handled() == 0);
    fork_and_wait();
    require(handled() == 1);
    behaviour_require_sound_heap();
    return 0;
}
