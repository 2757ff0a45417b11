"""Short runs of every workload, and allocators planted to break them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.patience import HANG_SECONDS

# name -> program and the options of a run of some milliseconds.
SMALL: dict[str, tuple[str, ...]] = {
    "tiny": ("tiny", "--ops", "20000", "--warm", "200"),
    "tiny_fifo": ("tiny", "--ops", "20000", "--warm", "200", "--variant", "fifo"),
    "random_mixed": ("random_mixed", "--ops", "20000", "--warm", "200"),
    "pareto": ("random_mixed", "--ops", "20000", "--warm", "200", "--sizes", "pareto"),
    "queue": ("queue", "--ops", "20000", "--warm", "200"),
    "queue_1_2": ("queue", "--ops", "20000", "--warm", "200", "--threads", "3", "--consumers", "2"),
    "queue_2_1": ("queue", "--ops", "20000", "--warm", "200", "--threads", "3", "--consumers", "1"),
    "larson": ("larson", "--ops", "20000", "--slots", "100", "--rounds", "5", "--threads", "2"),
    "remote": ("remote", "--ops", "20000", "--warm", "200", "--slots", "100"),
    "pingpong": ("pingpong", "--ops", "20000", "--warm", "200", "--slots", "100"),
    "false_active": ("false_sharing", "--ops", "20000", "--rounds", "10", "--max", "64"),
    "false_passive": ("false_sharing", "--ops", "20000", "--rounds", "10", "--max", "64",
                      "--variant", "passive"),
    "burst": ("burst", "--ops", "20000", "--warm", "500", "--rounds", "500"),
    "locality": ("locality", "--ops", "20000", "--warm", "200", "--slots", "200"),
    "growth_vector": ("growth", "--ops", "20000", "--warm", "10", "--max", "4096"),
    "growth_string": ("growth", "--ops", "20000", "--warm", "10", "--max", "512", "--touch", "1",
                      "--variant", "string"),
    "large": ("large", "--ops", "200", "--warm", "10", "--slots", "10"),
    "calloc": ("calloc", "--ops", "20000", "--warm", "200", "--slots", "100"),
    "aligned": ("aligned", "--ops", "20000", "--warm", "200", "--slots", "100"),
    "thread_churn": ("thread_churn", "--ops", "20", "--warm", "2"),
    "fork_heavy": ("fork_heavy", "--ops", "4", "--warm", "1", "--slots", "1000", "--rounds", "50"),
    "startup": ("startup", "--ops", "4", "--warm", "1"),
    "phase_change": ("phase_change", "--ops", "20000"),
    "idle_owner": ("idle_owner", "--ops", "20000"),
    "spike": ("spike", "--ops", "5000", "--max", "4096", "--idle-ms", "0", "--beat-ms", "0"),
    "leak": ("leak", "--ops", "20000", "--warm", "200", "--slots", "100"),
    "latency": ("latency", "--ops", "20000", "--warm", "200", "--slots", "100", "--threads", "2"),
    "threadtest": ("threadtest", "--ops", "20000", "--warm", "200", "--slots", "100"),
    "batches": ("batches", "--ops", "20000", "--warm", "200", "--slots", "1000", "--threads", "2"),
    "trees": ("trees", "--ops", "20000", "--depth", "8"),
    "ordered_map": ("ordered_map", "--ops", "20000", "--slots", "1000"),
    "mstress": ("mstress", "--ops", "20000", "--warm", "200", "--rounds", "1000"),
    "rptest": ("rptest", "--ops", "20000", "--warm", "200", "--slots", "100"),
    "soak": ("soak", "--ops", "20000", "--warm", "2000", "--slots", "5120", "--interval-ms", "20"),
    "pairs": ("pairs", "--ops", "20000", "--slots", "100"),
}  # fmt: skip

# A pool that never takes a block back. `OVERLAP(bytes)` is how much of the previous block the next
# one covers; a library says by macros what it breaks.
POOL = """
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#ifndef OVERLAP
#define OVERLAP(bytes) 0
#endif
#ifndef MISALIGN
#define MISALIGN 0
#endif
#ifndef LOST_BY_REALLOC
#define LOST_BY_REALLOC 0
#endif
#ifndef BEFORE_MALLOC
#define BEFORE_MALLOC
#endif

static char pool[1u << 30] __attribute__((aligned(4096)));
static size_t used;
static unsigned turn;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *take(size_t alignment, size_t bytes, size_t overlap) {
    bytes = (bytes + 15) & ~15ul;
    pthread_mutex_lock(&lock);
    size_t at = (used - overlap + alignment - 1) & ~(alignment - 1);
    if (at + bytes > sizeof pool) _exit(99);
    used = at + bytes;
    pthread_mutex_unlock(&lock);
    return pool + at;
}
static size_t due(size_t bytes) {
    return ++turn > 64 && turn % 2 == 0 && used >= bytes ? OVERLAP(bytes) : 0;
}
void *malloc(size_t bytes) {
    BEFORE_MALLOC
    return take(16, bytes, due((bytes + 15) & ~15ul));
}
void free(void *block) { (void)block; }
void *calloc(size_t count, size_t bytes) {
#ifdef DIRTY
    return memset(take(16, count * bytes, 0), turn++ > 1000, count * bytes);
#elif defined CALLOC_OVERLAPS
    return memset(malloc(count * bytes), 0, count * bytes);
#else
    return take(16, count * bytes, 0);
#endif
}
void *realloc(void *block, size_t bytes) {
    char *made = malloc(bytes);
    if (block == NULL) return made;
    size_t readable = pool + used - (char *)block;
    memmove(made, block, bytes < readable ? bytes : readable);
    if (LOST_BY_REALLOC != 0) memset(made, 0, bytes < LOST_BY_REALLOC ? bytes : LOST_BY_REALLOC);
    return made;
}
void *aligned_alloc(size_t alignment, size_t bytes) {
    return (char *)take(alignment, bytes + MISALIGN, due((bytes + 15) & ~15ul)) + MISALIGN;
}
int posix_memalign(void **block, size_t alignment, size_t bytes) {
    *block = aligned_alloc(alignment, bytes);
    return *block == NULL ? ENOMEM : 0;
}
"""

# Each block is a mapping of its own, with its size in front: all memory goes back at once.
MAPPINGS = """
#define _GNU_SOURCE
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
struct header { char *mapping; size_t bytes; };
static size_t served;
static void *take(size_t offset, size_t bytes) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    char *mapping = mmap(0, offset + bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (mapping == MAP_FAILED) return 0;
    ((struct header *)(mapping + offset))[-1] = (struct header){mapping, offset + bytes};
    __atomic_fetch_add(&served, 1, __ATOMIC_RELAXED);
    return mapping + offset;
}
void *malloc(size_t bytes) { return take(sizeof(struct header), bytes); }
void free(void *block) {
    if (block) munmap(((struct header *)block)[-1].mapping, ((struct header *)block)[-1].bytes);
}
void *calloc(size_t count, size_t bytes) { return malloc(count * bytes); }
void *realloc(void *block, size_t bytes) {
    void *made = malloc(bytes);
    if (!block) return made;
    size_t old = ((struct header *)block)[-1].bytes - sizeof(struct header);
    memcpy(made, block, old < bytes ? old : bytes);
    free(block);
    return made;
}
void *aligned_alloc(size_t alignment, size_t bytes) {
    return take(alignment < sizeof(struct header) ? sizeof(struct header) : alignment, bytes);
}
int posix_memalign(void **block, size_t alignment, size_t bytes) {
    *block = aligned_alloc(alignment, bytes);
    return 0;
}
"""


def run(
    built: Path, line: tuple[str, ...], *more: str, preload: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a program of `built` with these options, on the C library or on `preload`."""
    return subprocess.run(
        [str(built / line[0]), *line[1:], *more],
        env={"LD_PRELOAD": str(preload)} if preload else {},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_SECONDS,
    )


def result(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The result line of a run that must have succeeded."""
    assert done.returncode == 0, done.stderr
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row
