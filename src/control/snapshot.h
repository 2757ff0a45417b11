// Snapshots: the process's own heap, written to a file as a reader outside would see it (docs/INSPECT_ABI.md).
//
// Nothing here allocates or takes a lock: other threads keep running, and a signal handler may write one.
#pragma once

// Writes a snapshot. 0, or an error number: EBUSY while another one is written, what writing failed with else; the
// file then ends early. errno is preserved.
int snapshot_write(int descriptor);

// In the child of a fork: the thread that was writing one is not there.
void snapshot_fork_child(void);

// Writes one at each signal of the option snapshot_signal from now on. Of a crash of the process's own (SIGSEGV, SIGBUS, SIGILL,
// SIGFPE, SIGTRAP, SIGSYS that nobody sent) one, before it ends as without, also where a second copy of the library is preloaded beside a program that has
// one in itself. A line on standard error names the file, as long as descriptor 2 leads to what it led to at the start. Once, at start-up, behind what else catches faults.
void snapshot_start(void);
