// The real memory underneath the simulated machine of fake_os.c.
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/bits.h"
#include "fake_os.h"

// See fake_os.h.
static size_t huge_page_bytes = 2 * MIB;

void fake_os_set_huge_page_bytes(size_t bytes) {
    huge_page_bytes = bytes;
}

size_t os_huge_page_bytes(void) {
    return huge_page_bytes;
}

#define MACHINE_BYTES (64 * GIB)
// So that blocks cross the same windows of the page map in every run.
#define MACHINE_ALIGNMENT MACHINE_BYTES

static inline void require_real(bool fine, const char *call) {
    if (!fine) {
        fprintf(stderr, "fake_os: the real system refused %s\n", call);
        abort();
    }
}

static const int protection[] = {
    [FAKE_UNMAPPED] = PROT_NONE,
    [FAKE_INACCESSIBLE] = PROT_NONE,
    [FAKE_READABLE] = PROT_READ,
    [FAKE_WRITABLE] = PROT_READ | PROT_WRITE,
};

// By bare system calls, so that no sanitizer takes the machine's memory for its own business.
static inline long real_mmap(uintptr_t start, size_t bytes, enum fake_state state,
                             int extra_flags) {
    return syscall(SYS_mmap, start, bytes, protection[state],
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | extra_flags, -1, 0L);
}

static inline void real_protect(uintptr_t start, size_t bytes, enum fake_state state) {
    require_real(syscall(SYS_mprotect, start, bytes, protection[state]) == 0, "mprotect");
}

#if defined(FAKE_OS_PLACE)
// An emulator keeps books of every page of a reservation: the machine lies where nothing else does,
// and only what is in use is mapped.
static inline uintptr_t real_machine(void) {
    return FAKE_OS_PLACE;
}

static inline void real_map(uintptr_t start, size_t bytes, enum fake_state state) {
    require_real(real_mmap(start, bytes, state, MAP_FIXED_NOREPLACE) == (long)start, "mmap");
}

static inline void real_forget(uintptr_t start, size_t bytes) {
    require_real(syscall(SYS_munmap, start, bytes) == 0, "munmap");
}
#else
static inline uintptr_t real_machine(void) {
    const long wide = real_mmap(0, MACHINE_BYTES + MACHINE_ALIGNMENT, FAKE_UNMAPPED, 0);
    require_real(wide > 0, "mmap");
    return align_up((uintptr_t)wide, MACHINE_ALIGNMENT);
}

static inline void real_map(uintptr_t start, size_t bytes, enum fake_state state) {
    real_protect(start, bytes, state);
}

static inline void real_forget(uintptr_t start, size_t bytes) {
    require_real(real_mmap(start, bytes, FAKE_UNMAPPED, MAP_FIXED) == (long)start, "mmap");
}
#endif
