#include "group.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char group[512];

static bool write_text(const char *directory, const char *file, const char *text) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", directory, file);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0) {
        close(fd);
    }
    return written;
}

// The directory of this process's memory controller, and its version: 1, 2, or 0 when there is none.
static int own_directory(char *directory, size_t capacity) {
    FILE *file = fopen("/proc/self/cgroup", "r");
    char line[400];
    int version = 0;
    while (file != NULL && version == 0 && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *path = strstr(line, ":memory:");
        if (path != NULL) {
            snprintf(directory, capacity, "/sys/fs/cgroup/memory%s", path + strlen(":memory:"));
            version = 1;
        } else if (strncmp(line, "0::", 3) == 0) {
            snprintf(directory, capacity, "/sys/fs/cgroup%s", line + 3);
            version = access(directory, F_OK) == 0 ? 2 : 0;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return version;
}

// Where a group of the test's own can have a limit. In version 2 a group with processes in it gives its children none, so
// it is made beside this process's own; below it only at the root, which is exempt.
static int place_for_group(char *directory, size_t capacity) {
    const int version = own_directory(directory, capacity);
    if (version == 2) {
        char *name = strrchr(directory, '/');
        if (name[1] != '\0') {
            *name = '\0';
        }
    }
    return version;
}

bool group_make(size_t limit_bytes) {
    char parent[480];
    const int version = place_for_group(parent, sizeof parent);
    char limit[32];
    snprintf(limit, sizeof limit, "%zu", limit_bytes);
    snprintf(group, sizeof group, "%.400s/hakmem-test-%d", parent, (int)getpid());
    if (version == 0 || mkdir(group, 0755) != 0) {
        group[0] = '\0';
        return false;
    }
    if (!write_text(group, version == 1 ? "memory.limit_in_bytes" : "memory.max", limit)) {
        rmdir(group);
        group[0] = '\0';
        return false;
    }
    return true;
}

void group_run_stage(const char *variable, char **values) {
    pid_t child = fork();
    require(child >= 0);
    if (child == 0) {
        char own[32];
        snprintf(own, sizeof own, "%d", (int)getpid());
        if (group[0] != '\0' && !write_text(group, "cgroup.procs", own)) {
            _exit(125);
        }
        setenv(variable, "1", 1);
        execv("/proc/self/exe", values);
        _exit(126);
    }
    int status = -1;
    require(waitpid(child, &status, 0) == child);
    // The last page of a group goes a moment after its last process.
    for (int i = 0; group[0] != '\0' && i < 100 && rmdir(group) != 0; i++) {
        sleep_ms(10);
    }
    require_that(!WIFSIGNALED(status), "killed by signal %d", WTERMSIG(status));
    require_that(WEXITSTATUS(status) == 0, "the load ended with status %d", WEXITSTATUS(status));
}

size_t group_charged_bytes(void) {
    char directory[480];
    char path[600];
    const int version = own_directory(directory, sizeof directory);
    snprintf(path, sizeof path, "%s/%s", directory,
             version == 1 ? "memory.usage_in_bytes" : "memory.current");
    FILE *file = version == 0 ? NULL : fopen(path, "r");
    size_t bytes = 0;
    if (file != NULL) {
        if (fscanf(file, "%zu", &bytes) != 1) {
            bytes = 0;
        }
        fclose(file);
    }
    return bytes;
}
