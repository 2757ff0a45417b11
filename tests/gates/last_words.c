// Preloaded behind the library under test: its destructor, which runs after the library's, copies the mappings of the
// process to standard output, so that what the end of a process touches is seen too.
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static char text[4096];

__attribute__((destructor)) static void copy_mappings(void) {
    int file = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
    ssize_t count = 0;
    while ((count = read(file, text, sizeof text)) > 0) {
        if (write(STDOUT_FILENO, text, (size_t)count) != count) {
            _exit(EXIT_FAILURE);
        }
    }
    if (count != 0) {
        _exit(EXIT_FAILURE);
    }
}
