// A program in C that loads a plug-in for itself and calls one case of it: PLUGIN CASE. 0, or the line where the case failed.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

int main(int count, char **values) {
    if (count != 3 || dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD) != NULL) {
        fputs("usage: host PLUGIN CASE, and no C++ runtime\n", stderr);
        return 1;
    }
    void *plugin = dlopen(values[1], RTLD_NOW | RTLD_LOCAL);
    int (*run)(void) = plugin == NULL ? NULL : (int (*)(void))(uintptr_t)dlsym(plugin, values[2]);
    if (run == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    const int line = run();
    if (line != 0) {
        fprintf(stderr, "%s: plugin.cc:%d\n", values[2], line);
    }
    return line != 0;
}
