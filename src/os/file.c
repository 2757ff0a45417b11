// file.h on Linux, by raw system calls. They write errno, which every function here puts back.
#include "os/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/system_call.h"
#include "os/os.h"

// Since Linux 5.14; the headers of Debian 11 do not have it yet.
#define POPULATE_WRITE 23

// A file larger than the limit would raise SIGXFSZ instead of an error.
static bool within_file_limit(size_t bytes) {
    struct rlimit limit = {0, 0};
    return SYSTEM_CALL(SYS_prlimit64, 0, RLIMIT_FSIZE, NULL, &limit) != 0 ||
           limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= bytes;
}

// Times that a call is made again which signals interrupt: a timer may come sooner than a file is laid out.
#define INTERRUPTIONS_MAX 100

// A file system without fallocate still has sparse files: only its fullness goes unnoticed there.
static bool take_storage(int file, size_t bytes) {
    bool taken = false, interrupted = true;
    for (unsigned times = 0; interrupted && times < INTERRUPTIONS_MAX; times++) {
        taken = SYSTEM_CALL(SYS_fallocate, file, 0, 0L, bytes) == 0 || errno == EOPNOTSUPP ||
                errno == ENOSYS;
        interrupted = !taken && errno == EINTR;
    }
    return taken;
}

static void *map_shared(int file, size_t bytes, size_t backed_bytes, size_t *backed) {
    if (!within_file_limit(bytes) || SYSTEM_CALL(SYS_ftruncate, file, bytes) != 0 ||
        !take_storage(file, backed_bytes)) {
        return NULL;
    }
    const long mapped =
        SYSTEM_CALL(SYS_mmap, NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0L);
    if (mapped == -1) {
        return NULL;
    }
    *backed = backed_bytes;
    if (!os_file_back((void *)mapped, os_page_bytes()) && take_storage(file, bytes)) {
        *backed = bytes;
    }
    return (void *)mapped;
}

void *os_file_create_shared(const char *path, size_t bytes, size_t backed_bytes, size_t *backed) {
    const int saved_errno = errno;
    void *start = NULL;
    backed_bytes =
        align_up(backed_bytes, os_page_bytes());  // what follows is backed from a page on
    const int file = (int)SYSTEM_CALL(SYS_openat, AT_FDCWD, path,
                                      O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file >= 0) {
        start = map_shared(file, bytes, backed_bytes, backed);
        if (start == NULL) {
            SYSTEM_CALL(SYS_unlinkat, AT_FDCWD, path, 0);
        }
        SYSTEM_CALL(SYS_close, file);
    }
    errno = saved_errno;
    return start;
}

bool os_file_back(void *start, size_t bytes) {
    const int saved_errno = errno;
    const bool backed = SYSTEM_CALL(SYS_madvise, start, bytes, POPULATE_WRITE) == 0;
    errno = saved_errno;
    return backed;
}

bool os_file_is_lost(const void *start, size_t bytes) {
    const int saved_errno = errno;
    const bool is_lost =
        SYSTEM_CALL(SYS_madvise, start, bytes, POPULATE_WRITE) != 0 && errno == EFAULT;
    errno = saved_errno;
    return is_lost;
}

int os_file_create(const char *path) {
    const int saved_errno = errno;
    const int file = (int)SYSTEM_CALL(SYS_openat, AT_FDCWD, path,
                                      O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    const int result = file >= 0 ? file : -errno;
    errno = saved_errno;
    return result;
}

void os_file_close(int descriptor) {
    const int saved_errno = errno;
    SYSTEM_CALL(SYS_close, descriptor);
    errno = saved_errno;
}

bool os_file_identify(int descriptor, struct os_file_identity *identity) {
    const int saved_errno = errno;
    struct stat status = {0};
    const bool is_open = SYSTEM_CALL(SYS_fstat, descriptor, &status) == 0;
    if (is_open) {
        *identity = (struct os_file_identity){status.st_dev, status.st_ino, status.st_rdev,
                                              S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode)};
    }
    errno = saved_errno;
    return is_open;
}

bool os_file_leads_to(int descriptor, const struct os_file_identity *wanted) {
    struct os_file_identity file;
    return os_file_identify(descriptor, &file) && file.device == wanted->device &&
           file.number == wanted->number && file.special_device == wanted->special_device;
}

int os_file_each(const char *path, char *buffer, size_t capacity,
                 int (*use)(const char *part, size_t bytes, void *context), void *context) {
    const int saved_errno = errno;
    int error = 0;
    const int file = (int)SYSTEM_CALL(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (file < 0) {
        error = errno;
    }
    for (bool more = file >= 0; more;) {
        const long got = SYSTEM_CALL(SYS_read, file, buffer, capacity);
        if (got > 0) {
            error = use(buffer, (size_t)got, context);
        } else if (got < 0 && errno != EINTR) {
            error = errno;
        }
        more = error == 0 && got != 0;
    }
    if (file >= 0) {
        SYSTEM_CALL(SYS_close, file);
    }
    errno = saved_errno;
    return error;
}

bool os_file_exists(const char *path) {
    const int saved_errno = errno;
    const bool exists = SYSTEM_CALL(SYS_faccessat, AT_FDCWD, path, F_OK) == 0;
    errno = saved_errno;
    return exists;
}

bool os_file_put_over(void *start, void *place, size_t bytes) {
    const int saved_errno = errno;
    const long result =
        start != NULL
            ? SYSTEM_CALL(SYS_mremap, start, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, place)
            : SYSTEM_CALL(SYS_mmap, place, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0L);
    errno = saved_errno;
    return result == (long)place;
}

size_t os_file_read(const char *path, char *text, size_t capacity) {
    const int saved_errno = errno;
    size_t length = 0;
    const int file = (int)SYSTEM_CALL(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (file >= 0) {
        while (length < capacity) {
            const long got = SYSTEM_CALL(SYS_read, file, text + length, capacity - length);
            if (got > 0) {
                length += (size_t)got;
            } else if (got == 0 || errno != EINTR) {
                break;
            }
        }
        SYSTEM_CALL(SYS_close, file);
    }
    errno = saved_errno;
    return length;
}

size_t os_file_read_link(const char *path, char *text, size_t capacity) {
    const int saved_errno = errno;
    const long length = SYSTEM_CALL(SYS_readlinkat, AT_FDCWD, path, text, capacity);
    errno = saved_errno;
    return length > 0 ? (size_t)length : 0;
}

size_t os_file_working_directory(char *path, size_t capacity) {
    const int saved_errno = errno;
    const long bytes = SYSTEM_CALL(SYS_getcwd, path, capacity);
    errno = saved_errno;
    // "(unreachable)" stands before what is outside.
    return bytes > 0 && path[0] == '/' ? (size_t)bytes - 1 : 0;
}

bool os_file_of_library(char *path, size_t capacity) {
    if (os_describe_mapping((uintptr_t)os_file_of_library, path, capacity) != OS_MAPPING_FOUND) {
        return false;
    }
    // Behind the addresses, the access, the offset, the device and the number.
    const char *start = __builtin_strchr(path, '/');
    const size_t length = __builtin_strlen(path);
    if (start == NULL || length + 1 == capacity) {
        return false;
    }
    __builtin_memmove(path, start, length - (size_t)(start - path) + 1);
    return true;
}

uint64_t os_process_id(void) {
    return (uint64_t)SYSTEM_CALL(SYS_getpid);
}

uint64_t os_parent_id(void) {
    return (uint64_t)SYSTEM_CALL(SYS_getppid);
}

void os_yield(void) {
    const int saved_errno = errno;
    SYSTEM_CALL(SYS_sched_yield);
    errno = saved_errno;
}

uint64_t os_clock_ns(void) {
    struct timespec now = {0, 0};
    const int saved_errno = errno;
    SYSTEM_CALL(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    errno = saved_errno;
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}
