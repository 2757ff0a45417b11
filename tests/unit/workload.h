// A random program in miniature: blocks of all kinds, from several threads, each filled with a
// pattern of its own and checked. A request may be refused, with NULL and ENOMEM; then what was there
// must be as it was. Ends the process with a message when anything is wrong (see isolate.h).
#pragma once

#include "isolate.h"

struct workload {
    uint64_t random_state;
    size_t bytes_max;  // largest request
    unsigned refused;  // requests that ended in NULL
    unsigned steps;
};

void workload_start(struct workload *workload, uint64_t seed, size_t bytes_max);

// Random operations; now and then time passes, and another thread frees or allocates.
void workload_run(struct workload *workload, unsigned steps);

// All contents and sizes are right.
void workload_check(void);

void workload_free_all(void);
unsigned workload_live_count(void);

// Changes one byte of one live block, for the control of a test.
void workload_damage(void);
