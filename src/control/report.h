// The report of one process to `hakmem run`: a file in the directory that the option `report`
// names, mapped shared, so that what was last written outlives _exit and kill -9.
//
// The file is REPORT_BYTES long (sparse):
//   0      text, lines of "key value", padded with NUL: hakmem-report (format version), pid, ppid,
//          forked, start_ns, mode, build_id, fields, class_fields, classes, inherited, name,
//          library, exe
//   4096   uint64_t books[]: one per name in `fields`, then for each of `classes` size classes one
//          per name in `class_fields`, then what the first `inherited` counters were when the
//          process was forked. The first is `state`: 1 started, 2 ended through exit.
//   16384  text, one line per fact of control/proof.h:
//          "start|exit\tmodule\tsymbol\tprovider\tcall|pointer|data|defines\n"
// It is empty where a program is served, but its report could not be made as long as that.
//
// Field names are the rows of config/counters.def, after the few that every report begins with.
//
// Without the option, every function here returns at once. None allocates; errno is preserved.
#pragma once

#include "base/base.h"

// In the constructor, after the options are loaded and before the program has threads.
void report_start(void);

// Writes the books. Any thread, any time, from slow paths; the caller sees to it that this is rare.
// Holds no lock, but collects the statistics, so it needs whatever stats_collect needs.
void report_refresh(void);

// The same at each tick of each thread: for a tenth of the time, all of them together, but every 0.3 s or so however long it takes.
void report_tick(void);

// At exit: proof of what is loaded by now, the books, peak memory, state 2. May be called again.
void report_finish(void);

// In the child of a fork: leaves the parent's file alone and begins one of its own. `had_threads`: the parent had others than the one
// that forked. One of these may have had the loader's lock of its list, which no C library makes anew: the child does not ask the
// loader at its exit, and its proof stays its parent's.
void report_fork_child(bool had_threads);
