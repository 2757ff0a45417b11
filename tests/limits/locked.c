// mlockall(MCL_FUTURE): every new mapping is populated and locked. What is only reserved must not
// become resident; pages that cannot be given back keep their contents, and calloc must clear them;
// under RLIMIT_MEMLOCK mmap fails with EAGAIN, which becomes NULL and ENOMEM.
#include "load.h"

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static void little_activity(unsigned int ms) {
    uint64_t end = now_ms() + ms;
    while (now_ms() < end) {
        for (size_t bytes = 16; bytes < 100000; bytes *= 2) {
            void *blocks[80];
            for (int i = 0; i < 80; i++) {
                require((blocks[i] = malloc(bytes)) != NULL);
            }
            for (int i = 0; i < 80; i++) {
                free(blocks[i]);
            }
        }
        sleep_ms(10);
    }
}

// Purging fails on locked pages: nobody may believe that they are zero now.
static void zero_after_failed_purge(void) {
    static const size_t sizes[] = {1000, 30000, 200000, 1500000, 6000000};
    enum { COUNT = 64 };
    static unsigned char *blocks[COUNT];
    for (int round = 0; round < 2; round++) {
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            int count = sizes[s] > MIB ? 2 : COUNT;
            for (int i = 0; i < count; i++) {
                require((blocks[i] = (unsigned char *)malloc(sizes[s])) != NULL);
                memset(blocks[i], 0xee, sizes[s]);
            }
            for (int i = 0; i < count; i++) {
                free(blocks[i]);
            }
        }
        if (round == 0) {
            malloc_trim(0);
        } else {
            little_activity(1200);
        }
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            int count = sizes[s] > MIB ? 2 : COUNT;
            for (int i = 0; i < count; i++) {
                require((blocks[i] = (unsigned char *)calloc(1, sizes[s])) != NULL);
                require_that(all_zero(blocks[i], sizes[s]), "calloc of %zu bytes is not zero",
                             sizes[s]);
            }
            for (int i = 0; i < count; i++) {
                free(blocks[i]);
            }
        }
    }
}

// What is only reserved is gigabytes of address space: entries of the zero page for all of it take seconds. Without huge pages it is as it is
// for what was reserved before.
static bool has_huge_pages(void) {
    char words[64] = "";
    const int file = open("/sys/kernel/mm/transparent_hugepage/enabled", O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        require(read(file, words, sizeof words - 1) >= 0);
        close(file);
    }
    return words[0] != '\0' && strstr(words, "[never]") == NULL;
}

// Of the thread's processor time: to fill tables takes that, whatever else the machine does.
#define LOCK_MS_MAX 1000

static uint64_t cpu_ms(void) {
    struct timespec now;
    require(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

// Of /proc/self/ns/user, of the system's own namespace.
#define FIRST_USERS_INODE 0xeffffffdu

// Who has the capability in the system's own namespace of users is refused no lock. Others may be: a container's root, too.
static bool may_lock_anything(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3];
    struct stat users;
    require(syscall(SYS_capget, &header, sets) == 0);
    return (sets[0].effective & 1u << CAP_IPC_LOCK) != 0 &&
           stat("/proc/self/ns/user", &users) == 0 && users.st_ino == FIRST_USERS_INODE;
}

static void say_untested(const char *what) {
    const int error = errno;
    require_that(!may_lock_anything(), "mlockall: errno %d, with the right to lock", error);
    behaviour_say("mlockall: errno %d: %s is not tested", error, what);
}

static void with_all_rights(void) {
    struct rlimit limit;
    require(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    // The system grants mlockall() below a limit as well, and refuses what comes later: the other half of the test is about that.
    if (limit.rlim_cur != RLIM_INFINITY && !may_lock_anything()) {
        behaviour_say(
            "RLIMIT_MEMLOCK of %zu KiB: memory that is locked with all rights is not tested",
            (size_t)limit.rlim_cur / KIB);
        return;
    }
    size_t before = rss_bytes();
    const uint64_t start_ms = cpu_ms();
    const bool refused = mlockall(MCL_CURRENT | MCL_FUTURE) != 0;
    const uint64_t lock_ms = cpu_ms() - start_ms;
    require_that(lock_ms <= LOCK_MS_MAX || !has_huge_pages(), "mlockall took %lu ms",
                 (unsigned long)lock_ms);
    if (refused) {
        say_untested("memory that is locked with all rights");
        return;
    }
    load_grow(64 * MIB, MIB);
    require(load_refusals() == 0);
    size_t resident = rss_bytes();
    behaviour_say("locked: %zu MiB live, %zu KiB resident over %zu KiB", load_live() / MIB,
                  resident / KIB, before / KIB);
    require_that(resident < before + 160 * MIB, "%zu MiB are resident for %zu MiB live",
                 resident / MIB, load_live() / MIB);
    load_shrink(1);
    // Nothing that is locked can be cleared, but what is wholly free can be unmapped.
    malloc_trim(0);
    size_t left = rss_bytes();
    behaviour_say("all of it freed: %zu KiB resident", left / KIB);
    require_that(left < before + 32 * MIB, "%zu MiB are resident with nothing live", left / MIB);
    zero_after_failed_purge();
    load_complete(32 * MIB);
    require(munlockall() == 0);
    load_complete(64 * MIB);
}

static void under_a_small_limit(void) {
    struct rlimit limit;
    require(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    limit.rlim_cur = limit.rlim_max < 16 * MIB ? limit.rlim_max : 16 * MIB;
    require(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    // Root may lock beyond its limit.
    if (geteuid() == 0) {
        require(setresuid(65534, 65534, 65534) == 0);
    }
    require(mlockall(MCL_FUTURE) == 0);
    size_t got = load_grow(64 * MIB, 300 * KIB);
    behaviour_say("under RLIMIT_MEMLOCK of %zu KiB: %zu KiB, %u refusals",
                  (size_t)limit.rlim_cur / KIB, got / KIB, load_refusals());
    for (size_t bytes = 16; bytes < 100 * MIB; bytes *= 5) {
        load_every_entry_point(bytes);
    }
    load_shrink(2);
    load_grow(64 * MIB, 4000);
    load_shrink(1);
    behaviour_require_sound_heap();
    require(munlockall() == 0);
    load_complete(64 * MIB);
}

// The first call of malloc with all that is mapped locked.
static int before_the_first_call(void) {
    if (mlockall(MCL_FUTURE) != 0) {
        say_untested("a first call with all that is mapped locked");
        return 0;
    }
    const uint64_t start_ms = cpu_ms();
    void *block = malloc(opaque(100));
    const uint64_t first_ms = cpu_ms() - start_ms;
    require(block != NULL);
    require_that(first_ms <= LOCK_MS_MAX, "the first malloc took %lu ms", (unsigned long)first_ms);
    require_that(rss_bytes() < 64 * MIB, "%zu MiB are resident", rss_bytes() / MIB);
    free(block);
    return 0;
}

// A page that the program locks keeps what is freed around it for as long as it is locked: 64 KiB of it, no more.
static void with_single_pages_locked(void) {
    enum { COUNT = 4000, BETWEEN = 31, BYTES = 100000 };
    static char *blocks[COUNT];
    struct rlimit limit;
    require(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    const uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    if (limit.rlim_cur < COUNT / BETWEEN * page_bytes && !may_lock_anything()) {
        behaviour_say("RLIMIT_MEMLOCK of %zu KiB: single pages that are locked are not tested",
                      (size_t)limit.rlim_cur / KIB);
        return;
    }
    const size_t before = rss_bytes();
    for (int i = 0; i < COUNT; i++) {
        require((blocks[i] = (char *)malloc(BYTES)) != NULL);
        memset(blocks[i], 1, BYTES);
    }
    size_t locked_count = 0, live_bytes = 0;
    for (int i = 0; i < COUNT; i += BETWEEN) {
        const uintptr_t page = ((uintptr_t)blocks[i] + page_bytes - 1) & ~(page_bytes - 1);
        require(mlock((void *)page, page_bytes) == 0);
        locked_count++;
    }
    for (int i = 0; i < COUNT; i++) {
        if (i % BETWEEN == BETWEEN - 1) {
            live_bytes += BYTES;
        } else {
            free(blocks[i]);
        }
    }
    malloc_trim(0);
    const size_t after = rss_bytes();
    behaviour_say("%zu pages locked amid %d blocks: %zu KiB live, %zu KiB more resident",
                  locked_count, COUNT, live_bytes / KIB, (after - before) / KIB);
    // The trim of glibc stops at such a page.
    require_that(!behaviour_on_hakmem() ||
                     after < before + 2 * live_bytes + locked_count * 128 * KIB + 2 * MIB,
                 "%zu MiB stay", (after - before) / MIB);
}

static void in_a_child(void (*body)(void)) {
    pid_t child = fork();
    require(child >= 0);
    if (child == 0) {
        body();
        exit(0);
    }
    int status = -1;
    require(waitpid(child, &status, 0) == child);
    require_that(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %#x", (unsigned int)status);
}

static void run_anew(const char *program) {
    const pid_t child = fork();
    require(child >= 0);
    if (child == 0) {
        execl(program, program, "early", (char *)NULL);
        _exit(1);
    }
    int status = -1;
    require(waitpid(child, &status, 0) == child);
    require_that(WIFEXITED(status) && WEXITSTATUS(status) == 0, "early: status %#x",
                 (unsigned int)status);
}

int main(int argument_count, char **arguments) {
    if (argument_count > 1) {
        return before_the_first_call();
    }
    behaviour_require_allocator();
    run_anew(arguments[0]);
    in_a_child(with_single_pages_locked);
    in_a_child(with_all_rights);
    in_a_child(under_a_small_limit);
    return 0;
}
