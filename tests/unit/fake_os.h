// A simulated machine behind os/os.h. A program that links fake_os.c defines every name of that
// header, so the linker leaves linux.c out.
//
// The machine has 64 GiB of addresses. Real memory lies underneath, so that what the allocator hands
// out can be used; everything else is simulated: which range belongs to which mapping and in what
// state it is, a clock that moves by hand, limits, and calls that fail on command. A call that breaks
// the contract of os.h (unmapping what is not mapped, purging outside a mapping, a range across two
// mappings, an unaligned range) ends the process with a message that names it.
//
// The functions of os.h may be called from any thread; those below by one at a time.
#pragma once

#include "os/os.h"

enum fake_state {
    FAKE_UNMAPPED,
    FAKE_INACCESSIBLE,  // guarded, or reserved to move something to
    FAKE_READABLE,      // reserved
    FAKE_WRITABLE,
};

// Bytes of one page of the machine: 4096 unless set, before the first call of any kind.
void fake_os_set_page_bytes(size_t bytes);
// And of a huge page: 2 MiB unless set.
void fake_os_set_huge_page_bytes(size_t bytes);

// The clock stands still until it is moved. It starts at a second.
void fake_os_pass_ms(uint64_t ms);
// Processor time of all threads.
void fake_os_pass_cpu_ns(uint64_t ns);

// Processors of the machine; 1 from the start.
void fake_os_set_processors(unsigned count);

// ---- Failures ----

// Any kind of call that a request may end in NULL for. os_random() may be made to fail as well, but
// has an answer all the same.
#define FAKE_ANY OS_CALL_COUNT

// The nth call from now on (1: the next) of a kind, or of any kind that may fail, is refused; with
// `from_then_on` every later one as well. Replaces an earlier order.
void fake_os_fail(enum os_call kind, uint64_t nth, bool from_then_on);
void fake_os_mend(void);

// Calls refused by such an order since the start.
uint64_t fake_os_struck(void);

// Calls refused since the start, for whatever reason.
uint64_t fake_os_refused(void);

// The next os_move() to what is reserved, or guarded, is refused, and another thread's mapping lies there afterwards.
void fake_os_lose_destination(void);

// As if the program had locked a range in memory: what reaches into it is not purged. Replaces an earlier one; 0 bytes: none.
void fake_os_lock(const void *start, size_t bytes);

// Mapped bytes, reservations included, above which nothing more is mapped; 0: no limit.
void fake_os_limit_bytes(size_t bytes);

// Ranges of one state above which nothing is mapped or split; 0: no limit.
void fake_os_limit_ranges(size_t count);

// Calls `watch` before each call that gives memory back (OS_MUNMAP, OS_MADVISE of os_purge()), while the machine
// is free to be called; NULL: no more.
void fake_os_watch(void (*watch)(enum os_call call, void *start, size_t bytes));

// ---- What happened ----

uint64_t fake_os_calls(enum os_call kind);
size_t fake_os_range_count(void);
// Mapped bytes in a state.
size_t fake_os_bytes(enum fake_state state);
enum fake_state fake_os_state(const void *address);
// Bytes given to os_purge() with success.
uint64_t fake_os_purged_bytes(void);
// Bytes given to os_split_huge_pages() with success.
uint64_t fake_os_split_bytes(void);
// How long os_touch_ns() takes from now on where huge pages are wished for; elsewhere it takes 1,000.
void fake_os_touch_ns(uint64_t ns);

// The last wish about huge pages for the mapping of an address.
enum os_huge_pages fake_os_wish(const void *address);

// Takes the addresses behind a mapping, so that it cannot grow where it lies.
void fake_os_block_behind(const void *address);

// ---- The fake's own test ----

// Breaches are counted instead of ending the process.
void fake_os_tolerate(void);
uint64_t fake_os_breaches(void);
