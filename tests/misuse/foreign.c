// Another library with a small allocator of its own: its blocks are not malloc's.
#include <stddef.h>

void *foreign_take(size_t bytes);

// Initialised, so that it lies in the file's own data and not in anonymous memory behind it.
static char pool[65536] = {1};
static size_t used = 64;

__attribute__((visibility("default"))) void *foreign_take(size_t bytes) {
    size_t at = (used + 15) / 16 * 16 + (size_t)(-(ptrdiff_t)(size_t)pool & 15);
    used = at + bytes;
    return used <= sizeof pool ? pool + at : NULL;
}
