// What pthread_atfork is given: see lifecycle.c.
#pragma once

#include "os/lock.h"

// Held while a handler of fork is registered: the C library allocates under a lock of its own there, which its fork takes
// again behind fork_prepare().
extern struct lock fork_handlers_lock;

void fork_prepare(void);
void fork_parent(void);
void fork_child(void);
