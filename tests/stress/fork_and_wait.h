// A child that ends at once, well.
#pragma once

#include "behaviour.h"

static inline void fork_and_wait(void) {
    const pid_t child = fork();
    require(child >= 0);
    if (child == 0) {
        _exit(0);
    }
    int status = -1;
    require(waitpid(child, &status, 0) == child && status == 0);
}
