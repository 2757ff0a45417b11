#include "api/exit_file.h"

#include "base/atomic.h"
#include "config/control.h"
#include "os/file.h"
#include "os/os.h"

// Where statistics and leaks go at exit: many programs close standard error before they end. Some close every descriptor, and open
// files of their own under these numbers: a descriptor is written to as long as it leads to the file that it led to when it was kept.
// -1: there is none. Relaxed exchanges: of who gives it up and who ends the process one has it; its first value comes with has_exit_file. Pairs
// with nothing.
static _Atomic(int) exit_descriptor;
static struct os_file_identity exit_file;
_Atomic(uint8_t) exit_file_reader;  // relaxed: see exit_file.h

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
    atomic_store_relaxed(&exit_descriptor, is_open ? descriptor : -1);
    atomic_store_relaxed(&exit_file_reader,
                         exit_file.is_stream ? EXIT_FILE_AWAITED : EXIT_FILE_NOT_AWAITED);
    atomic_store_release(&has_exit_file, true);
}

// Of a reader outside, which cannot keep a descriptor here. Where it told nothing (its descriptor was closed, or the reader is older), no
// file is known to be meant.
static int output_told_from_outside(void) {
    const struct os_file_identity told = {
        .device = atomic_load_relaxed(&control.output_device),
        .number = atomic_load_relaxed(&control.output_number),
        .special_device = atomic_load_relaxed(&control.output_special_device),
    };
    const bool is_told = (told.device | told.number | told.special_device) != 0;
    return is_told && os_file_leads_to(2, &told) ? 2 : -1;
}

int exit_file_output(void) {
    if (!atomic_load_acquire(&has_exit_file)) {
        return output_told_from_outside();
    }
    // Of the thread that ends the process, which may ask twice.
    static int kept = -1;
    const int descriptor = atomic_exchange_relaxed(&exit_descriptor, -1);
    kept = descriptor != -1 ? descriptor : kept;
    if (os_file_leads_to(kept, &exit_file)) {
        return kept;
    }
    return os_file_leads_to(2, &exit_file) ? 2 : -1;
}

void exit_file_give_up(void) {
    struct os_file_identity other;
    if (!os_file_identify(2, &other) || os_file_leads_to(2, &exit_file)) {
        return;
    }
    atomic_store_relaxed(&exit_file_reader, EXIT_FILE_NOT_AWAITED);
    const int descriptor = atomic_exchange_relaxed(&exit_descriptor, -1);
    if (descriptor != -1 && os_file_leads_to(descriptor, &exit_file)) {
        os_file_close(descriptor);
    }
}
