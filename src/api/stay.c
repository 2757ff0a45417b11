// The archive's alone. Linked into a library, it must outlive that library's dlclose: blocks, handlers of fork and the
// destructor of each thread's cache do. libhakmem.so says so in its file (-z nodelete), which an archive cannot.
#include <dlfcn.h>
#include <link.h>

#include "base/base.h"

#if defined(__GLIBC__)
// Weak: a program that is static may have neither. By its name dlopen itself would draw the linker's warning there.
#pragma weak dlsym
#pragma weak dladdr1

__attribute__((constructor(101))) static void stay(void) {
    Dl_info info;
    struct link_map *module = NULL;
    if (&dlsym == NULL || &dladdr1 == NULL ||
        dladdr1((void *)stay, &info, (void **)&module, RTLD_DL_LINKMAP) == 0 || module == NULL) {
        return;
    }
    // The program itself has no name, and nobody unloads it.
    if (module->l_name[0] != '\0') {
        __typeof__(dlopen) *const open =
            (__typeof__(dlopen) *)(uintptr_t)dlsym(RTLD_DEFAULT, "dlopen");
        if (open != NULL) {
            open(module->l_name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
        }
    }
}
#endif
