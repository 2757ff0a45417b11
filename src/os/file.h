// Files, as far as a malloc needs them: a small file shared with a reader in another process, and
// what /proc tells a process about itself.
//
// Contract, as in os.h: no function here allocates or takes a lock; errno is never touched.
#pragma once

#include "base/base.h"

// Creates a file that must not exist yet (mode 0600), `bytes` long, and maps it shared. Storage is
// taken for the first `backed_bytes`, so that writing there cannot fault on a full file system; for
// all of it where the kernel (before Linux 5.14) cannot be asked for more later. `*backed` says how
// much. NULL, with nothing left behind, when the system refuses any of it.
void *os_file_create_shared(const char *path, size_t bytes, size_t backed_bytes, size_t *backed);

// Takes storage for a page-aligned part of a shared mapping. False when the file system is full or
// the kernel cannot be asked.
bool os_file_back(void *start, size_t bytes);

// Whether a write to a part of such a mapping, from a page on, ends the process (SIGBUS): it lies behind the file's end by now, because
// somebody made the file shorter, or the file system copies what is written, and is full. False where the kernel cannot tell (before Linux 5.14).
bool os_file_is_lost(const void *start, size_t bytes);

// Creates a file that must not exist yet (mode 0600), for writing. Its descriptor, or an error number with a minus.
int os_file_create(const char *path);

void os_file_close(int descriptor);

// Tells files apart, also those that lie in no directory: pipes, sockets, terminals.
struct os_file_identity {
    uint64_t device, number, special_device;
    bool is_stream;  // a pipe or a socket: its reader waits for the last writer
};

// Which file a descriptor leads to. False where it is closed.
bool os_file_identify(int descriptor, struct os_file_identity *identity);

// Whether a descriptor is open and leads to that file.
bool os_file_leads_to(int descriptor, const struct os_file_identity *wanted);

// Hands a file to use(part, bytes, context) in parts of up to `capacity` bytes, which are in `buffer` meanwhile. 0, or
// the first error: of the system, or returned by use().
int os_file_each(const char *path, char *buffer, size_t capacity,
                 int (*use)(const char *part, size_t bytes, void *context), void *context);

bool os_file_exists(const char *path);

// Puts a mapping in the place of another one of as many bytes, or memory of no file where `start` is NULL: at no moment is
// nothing there. False when the system refuses; nothing may be there then (Linux up to 6.16).
bool os_file_put_over(void *start, void *place, size_t bytes);

// The first `capacity` bytes of a file, or where a symbolic link leads; the length, 0 on failure.
// Neither is NUL-terminated.
size_t os_file_read(const char *path, char *text, size_t capacity);
size_t os_file_read_link(const char *path, char *text, size_t capacity);

// The path of the working directory, NUL-terminated; the length, 0 where it is too long, unknown, or outside of the process's root.
size_t os_file_working_directory(char *path, size_t capacity);

// The path of the file that holds this library, as /proc/self/maps has it, into `path`, NUL-terminated.
// False when it is not known or too long.
bool os_file_of_library(char *path, size_t capacity);

uint64_t os_process_id(void);
uint64_t os_parent_id(void);

// Lets other threads run first.
void os_yield(void);

// Nanoseconds of the monotonic clock.
uint64_t os_clock_ns(void);
