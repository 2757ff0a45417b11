// What pthread_atfork is given: see lifecycle.c.
#pragma once

void fork_prepare(void);
void fork_parent(void);
void fork_child(void);
