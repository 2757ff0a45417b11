// Finding and reading the file of a profile, before anything else works: bare system calls alone.
#include "config/profile.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// Read once at start-up; untouched pages of it cost nothing when there is no profile.
static char profile_text[PROFILE_BYTES_MAX + 1];

static bool fail(struct profile_file *file, const char *what, int error) {
    file->what = what;
    file->error = error;
    return false;
}

// Never waits: a FIFO or a device is seen to be no regular file, and no more than the limit is read
// of anything.
static bool read_descriptor(long descriptor, struct profile_file *file) {
    struct stat status;
    size_t count = 0;
    if (syscall(SYS_fstat, descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
        return fail(file, "is not a regular file", 0);
    }
    while (count < sizeof profile_text) {
        const long got =
            syscall(SYS_read, descriptor, profile_text + count, sizeof profile_text - count);
        if (got == 0) {
            break;
        }
        if (got > 0) {
            count += (size_t)got;
        } else if (errno != EINTR) {
            return fail(file, "cannot be read", errno);
        }
    }
    if (count > PROFILE_BYTES_MAX) {
        return fail(file, "is larger than 65536 bytes", 0);
    }
    if (memchr(profile_text, '\0', count) != NULL) {
        return fail(file, "is not a text file", 0);
    }
    file->text = (struct slice){profile_text, count};
    return true;
}

static bool read_path(struct profile_file *file) {
    const long descriptor =
        syscall(SYS_openat, AT_FDCWD, file->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (descriptor < 0) {
        return errno == ENOENT ? fail(file, "does not exist", 0)
                               : fail(file, "cannot be opened", errno);
    }
    const bool done = read_descriptor(descriptor, file);
    syscall(SYS_close, descriptor);
    return done;
}

bool profile_read(const char *name, struct profile_file *file) {
    const size_t count = strlen(name);
    if (count >= sizeof file->path) {
        memcpy(file->path, name, sizeof file->path - 1);
        file->path[sizeof file->path - 1] = '\0';
        return fail(file, "is too long for a path", 0);
    }
    memcpy(file->path, name, count + 1);
    return read_path(file);
}
