// A memory cgroup of the test's own, version 1 or 2, where the system lets us make one.
#pragma once

#include "behaviour.h"

// What a test returns that can see nothing without a group: to ctest it was skipped.
#define GROUP_SKIPPED 77

// Makes a group with a limit, below this process's own or beside it; false when that cannot be. One at a time.
bool group_make(size_t limit_bytes);

// This program once more, in the group if there is one, with `variable`=1 in its environment: it must end well. The
// group is removed.
void group_run_stage(const char *variable, char **values);

// What is charged to the group of this process; 0 when that cannot be read.
size_t group_charged_bytes(void);
