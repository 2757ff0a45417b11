// Says what this program runs on, and fails when it is not what the arguments say:
//   identity machine C-library page-bytes
// With 0 page-bytes: what QEMU_PAGESIZE in the environment asks the emulator for, 4096 without it.
// A port's tests that ran on the machine that built them would prove nothing.
#include "behaviour.h"

#include <elf.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/utsname.h>

#include "hakmem.h"

extern void hakmem_totals(struct hakmem_totals *totals) __attribute__((weak));
#if defined(__GLIBC__)
// No other C library has it: the program would not link.
#include <gnu/libc-version.h>
#else
extern const char *gnu_get_libc_version(void) __attribute__((weak));
#endif

static Elf64_Ehdr header_of_program(void) {
    Elf64_Ehdr header;
    int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    require(file >= 0);
    require(read(file, &header, sizeof header) == (ssize_t)sizeof header);
    close(file);
    return header;
}

static const char *machine_of(Elf64_Half machine) {
    return machine == EM_AARCH64 ? "aarch64" : machine == EM_X86_64 ? "x86_64" : "unknown";
}

static void check_machine(const char *wanted) {
    struct utsname kernel;
    require(uname(&kernel) == 0);
    require_that(strcmp(kernel.machine, wanted) == 0, "the machine is %s, not %s", kernel.machine,
                 wanted);
    const Elf64_Ehdr header = header_of_program();
    require_that(strcmp(machine_of(header.e_machine), wanted) == 0,
                 "the program is for %s, not for %s", machine_of(header.e_machine), wanted);
}

static void check_c_library(const char *wanted) {
#if defined(__GLIBC__)
    const char *found = gnu_get_libc_version()[0] == '2' ? "glibc" : "unknown";
#else
    const char *found = gnu_get_libc_version == NULL ? "musl" : "glibc";
#endif
    require_that(strcmp(found, wanted) == 0, "the C library is %s, not %s", found, wanted);
}

// The loader's name for the program, where it has a loader: musl's and glibc's are different files.
static int check_loader(struct dl_phdr_info *info, size_t size, void *wanted) {
    (void)size;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type == PT_INTERP) {
            const char *name = (const char *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
            const bool is_musl = strstr(name, "/ld-musl-") != NULL;
            require_that(is_musl == (strcmp((const char *)wanted, "musl") == 0), "the loader is %s",
                         name);
        }
    }
    return 1;  // the first is the program itself
}

static size_t wanted_page_size(size_t bytes) {
    const char *asked_for = getenv("QEMU_PAGESIZE");
    return bytes != 0 ? bytes : asked_for != NULL ? strtoul(asked_for, NULL, 10) : 4096;
}

static void check_page_size(size_t wanted) {
    const size_t told = getauxval(AT_PAGESZ);
    require_that(told == wanted, "a page has %zu bytes, not %zu", told, wanted);
    require((size_t)sysconf(_SC_PAGESIZE) == wanted);
    require(aligned_to(valloc(1), wanted));
}

// The books of the allocator follow what this program does.
static void check_allocator(void) {
    require_that(hakmem_totals != NULL, "hakmem is not loaded");
    behaviour_require_allocator();
    struct hakmem_totals before;
    struct hakmem_totals after;
    hakmem_totals(&before);
    char *block = malloc(3 * MIB);
    require(block != NULL);
    hakmem_totals(&after);
    require_that(after.live_bytes >= before.live_bytes + 3 * MIB, "malloc is not hakmem's");
    free(block);
    // What the C library allocates for itself and for the program.
    char *text = strdup("a string");
    require(malloc_usable_size(text) == 16);
    free(text);
    behaviour_require_sound_heap();
}

int main(int count, char **arguments) {
    require_that(count == 4, "usage: identity machine C-library page-bytes");
    check_machine(arguments[1]);
    check_c_library(arguments[2]);
    dl_iterate_phdr(check_loader, arguments[2]);
    check_page_size(wanted_page_size(strtoul(arguments[3], NULL, 10)));
    check_allocator();
    behaviour_say("%s, %s, pages of %zu bytes, hakmem %s", arguments[1], arguments[2],
                  (size_t)getauxval(AT_PAGESZ), hakmem_version());
    return 0;
}
