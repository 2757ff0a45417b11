// Crashes with so many blocks of 1,000 bytes: crash COUNT [breakpoint]
//
// By a breakpoint, behind which a program that is not ended goes on.
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    for (int i = argc > 1 ? atoi(argv[1]) : 0; i > 0; i--) {
        memset(malloc(1000), 1, 1000);
    }
    if (argc > 2) {
#if defined(__x86_64__)
        __asm__ volatile("int3");
#else
        __asm__ volatile("brk #0");
#endif
    } else {
        // Not null, which a compiler makes something else of.
        *(volatile int *)8 = 1;
    }
    return 0;
}
