// Linked into the programs of the flavour `coverage` in the place of _exit: tests end their child
// processes by it, and their counts would be lost.
#include <unistd.h>

void __gcov_dump(void);
_Noreturn void __real__exit(int status);
_Noreturn void __wrap__exit(int status);

void __wrap__exit(int status) {
    __gcov_dump();
    __real__exit(status);
}
