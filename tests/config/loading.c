#include "loading.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct seen *seen;
char said[256 * 1024];
char directory[] = "/tmp/hakmem-options-XXXXXX";

void load_then(char *const *envp, enum as as, child_action *action) {
    int log = memfd_create("stderr", 0);
    assert_true(log >= 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(log, STDERR_FILENO);
        if (as == AS_NOBODY && geteuid() == 0 && seteuid(65534) != 0) {
            _exit(99);
        }
        errno = 55;
        options_load(envp, as == AS_SECURE);
        seen->errno_after = errno;
        if (action != NULL) {
            action();
        }
        seen->options = options;
        seen->profile = profile_in_force == NULL ? (struct profile){0} : *profile_in_force;
        snprintf(seen->report, sizeof seen->report, "%s", options.report);
        for (unsigned i = 0; i < OPTION_COUNT; i++) {
            seen->origins[i] = (uint8_t)options_origin((enum option_id)i);
        }
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    ssize_t count = pread(log, said, sizeof said - 1, 0);
    assert_true(count >= 0);
    said[count] = '\0';
    close(log);
    assert_int_equal(seen->errno_after, 55);
}

void file_write(const char *path, const char *bytes, size_t count) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, count), count);
    close(fd);
}

char profile_path[128];
static char profile_variable[160];

// Makes a profile file with this text and the variable that names it.
char *profile(const char *text) {
    snprintf(profile_path, sizeof profile_path, "%s/profile", directory);
    snprintf(profile_variable, sizeof profile_variable, "HAKMEM_PROFILE=%s", profile_path);
    file_write(profile_path, text, strlen(text));
    return profile_variable;
}

unsigned line_count(const char *text) {
    unsigned count = 0;
    for (; *text != '\0'; text++) {
        count += *text == '\n';
    }
    return count;
}

int loading_setup(void **state) {
    (void)state;
    seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return seen == MAP_FAILED || mkdtemp(directory) == NULL;
}

int loading_teardown(void **state) {
    (void)state;
    unlink(profile_path);
    return rmdir(directory);
}
