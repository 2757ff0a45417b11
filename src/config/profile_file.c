// Finding and reading the file of a profile, before anything else works: bare system calls alone.
#include "base/system_call.h"
#include "config/profile.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool (*profile_find_library)(char *path, size_t capacity);

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
    struct stat status = {0};
    size_t count = 0;
    if (SYSTEM_CALL(SYS_fstat, descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
        return fail(file, "is not a regular file", 0);
    }
    while (count < sizeof profile_text) {
        const long got =
            SYSTEM_CALL(SYS_read, descriptor, profile_text + count, sizeof profile_text - count);
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

static bool read_path(struct profile_file *file, const char *path) {
    const long descriptor =
        SYSTEM_CALL(SYS_openat, AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (descriptor < 0) {
        return errno == ENOENT ? fail(file, "does not exist", 0)
                               : fail(file, "cannot be opened", errno);
    }
    const bool done = read_descriptor(descriptor, file);
    SYSTEM_CALL(SYS_close, descriptor);
    return done;
}

// ---- Installed profiles

// Beside the library: where both were installed; in the build tree, the folder of the sources. Then where
// they were to be installed.
static const char *const folders[] = {"/" HAKMEM_LIBRARY_TO_PROFILES, "/../../profiles"};
static const char last_folder[] = HAKMEM_PROFILES;
static const char suffix[] = ".profile";

static bool is_name(const char *name, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const char c = name[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              (c == '.' && i > 0) || c == '-' || c == '_')) {
            return false;
        }
    }
    return count <= PROFILE_NAME_MAX;
}

// Appends; false when there is no room.
static bool append(char *path, size_t *count, const char *part) {
    const size_t more = strlen(part);
    if (*count + more >= PROFILE_PATH_MAX) {
        return false;
    }
    memcpy(path + *count, part, more + 1);
    *count += more;
    return true;
}

// False when the folder has no such profile; else it is read, or what is wrong is said.
static bool is_in_folder(struct profile_file *file, char *path, size_t count, const char *folder,
                         bool *done) {
    if (!append(path, &count, folder) || !append(path, &count, "/") ||
        !append(path, &count, file->path) || !append(path, &count, suffix)) {
        return false;
    }
    if (SYSTEM_CALL(SYS_faccessat, AT_FDCWD, path, F_OK) != 0) {
        return false;
    }
    *done = read_path(file, path);
    return true;
}

static bool read_installed(struct profile_file *file) {
    char path[PROFILE_PATH_MAX];
    bool done = false;
    if (profile_find_library != NULL && profile_find_library(path, sizeof path)) {
        const size_t count = (size_t)(strrchr(path, '/') - path);
        for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
            if (is_in_folder(file, path, count, folders[i], &done)) {
                return done;
            }
        }
    }
    return is_in_folder(file, path, 0, last_folder, &done) ? done
                                                           : fail(file, "is not installed", 0);
}

bool profile_read(const char *name, struct profile_file *file) {
    const size_t count = strlen(name);
    const size_t kept = count < sizeof file->path ? count : sizeof file->path - 1;
    memcpy(file->path, name, kept);
    file->path[kept] = '\0';
    file->what = NULL;
    file->error = 0;
    if (kept != count) {
        return fail(file, "is too long for a path", 0);
    }
    if (strchr(name, '/') != NULL) {
        return read_path(file, file->path);
    }
    return is_name(name, count) ? read_installed(file)
                                : fail(file, "is no name of a profile, nor a path", 0);
}
