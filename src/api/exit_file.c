#include "api/exit_file.h"

#include "base/atomic.h"
#include "os/file.h"
#include "os/os.h"

// Where statistics and leaks go at exit: many programs close standard error before they end. Some close every descriptor, and open
// files of their own under these numbers: a descriptor is written to as long as it leads to the file that it led to when it was kept.
static int exit_descriptor;  // -1: it was closed
static struct os_file_identity exit_file;
// Whether these two are set: not where a reader outside turned an option on. Release by who sets them, acquire by who looks.
static _Atomic(bool) has_exit_file;

void exit_file_keep(void) {
    // Relaxed: the first call does it. Pairs with nothing.
    static _Atomic(bool) keeps;
    if (atomic_exchange_relaxed(&keeps, true)) {
        return;
    }
    const int descriptor = os_duplicate(2);
    const bool is_open = os_file_identify(descriptor, &exit_file);
    exit_descriptor = is_open ? descriptor : -1;
    atomic_store_release(&has_exit_file, true);
}

static bool leads_to_exit_file(int descriptor) {
    struct os_file_identity file;
    return os_file_identify(descriptor, &file) && file.device == exit_file.device &&
           file.number == exit_file.number && file.special_device == exit_file.special_device;
}

int exit_file_output(void) {
    if (!atomic_load_acquire(&has_exit_file)) {
        return 2;
    }
    if (exit_descriptor == -1 || leads_to_exit_file(exit_descriptor)) {
        return exit_descriptor;
    }
    return leads_to_exit_file(2) ? 2 : -1;
}
