// Transparent huge pages of 2 MiB: which superslabs ask for them, and how memory behind them is given back
// (decisions 0007, 0028 and 0057).
//
// With huge_pages=adaptive the superslabs of a small heap refuse them: it would be resident in steps of 2 MiB. For a later
// one the learner is asked (control/policy_memory.h), which is told how much of the memory in use in such as refused is
// resident; with learn=0 all refuse. One superslab in HUGE_PAGES_PROBE goes without, to be looked at: what a program does with
// its memory may change.
#pragma once

#include "base/list.h"
#include "os/os.h"
#include "space/superslab.h"

// Below this many bytes of superslabs for each thread cache, but for no more than SMALL_HEAPS_MOST, the heap is small: the slabs
// that are filled in part, which huge pages would make resident, are one for each class and thread.
#define SMALL_HEAP_BYTES (8 * MIB)
#define SMALL_HEAPS_MOST 4
#define HUGE_PAGES_PROBE 16

// Of a superslab that asked for them, and of which a part was given back, the system would make huge pages again by and by,
// holes filled with zeros (khugepaged): such a superslab refuses them until it is wholly given back and used again, and each huge
// page that it has is split once. At most HOLLOW_MOST do: each may be a mapping of its own for the system, which bounds their
// number.
#define HOLLOW_MOST 4096

// The first touch of a huge page takes a fifth of a millisecond where 2 MiB are at hand. It takes several where the host of a virtual
// machine has taken them back, or pages must be moved out of their way first; a fault for each machine page is then cheaper, at one
// to two microseconds each. Who asks touches the first one itself, and asks no further where it took so long
// (docs/decisions/0065-what-a-huge-page-costs.md).
#define HUGE_PAGE_SLOW_NS UINT64_C(1000000)

// What the option wishes for a mapping whose size the program chose.
enum os_huge_pages huge_pages_wish_of_block(void);

// There is one thread cache more, with its heap.
void huge_pages_count_heap(void);

// Of a superslab just mapped the system was told nothing.
void huge_pages_begin(struct superslab *superslab);

// A superslab that was just unmapped does not count to HOLLOW_MOST any more. The arena's lock is held.
void huge_pages_end(struct superslab *superslab);

// Tells the system what is wished for a superslab that holds nothing. `superslabs` lists all of them, the newest
// last; they are `count`. The arena's lock is held.
void huge_pages_advise(struct superslab *superslab, const struct list *superslabs, uint64_t count);

// Of a superslab that was just told so, by who has the first run of it: touches that run's start, which reads as zero, if the superslab
// asks because the learner says so. Where that took too long it asks no more, as if a part of it had been given back (below HOLLOW_MOST).
void huge_pages_touch(struct superslab *superslab, void *start);

// The process is about to fork.
void huge_pages_fork(void);

// Whether huge pages may back the superslab of an address: no part of it was given back since it was taken into use.
bool huge_pages_may_back(const void *start);

// os_purge() for pages of one superslab that the caller has.
bool huge_pages_purge(void *start, size_t bytes);
