// The extensions that change something or tell of an error, hakmem_option_set, hakmem_trim and hakmem_snapshot_fd: option_set is the
// first call of the process. Says "set" then, and waits for the end of its input, while test_extensions.py looks at the options.
#include "behaviour.h"

#include "hakmem.h"

#pragma weak hakmem_option_set
#pragma weak hakmem_snapshot_fd
#pragma weak hakmem_trim

static int first_set = -2;

// Linked with the archive it runs before the allocator's own constructor, which reads the environment.
static void set_first(void) {
    first_set = hakmem_option_set("purge_delay_ms", "7");
}

__attribute__((section(".init_array.00050"),
               used)) static void (*const set_first_entry)(void) = set_first;

static void refused(const char *name, const char *value) {
    require_that(hakmem_option_set(name, value) == -1, "%s=%s was taken", name, value);
}

// Until it is asked for.
static void keep_what_is_freed(void) {
    require(hakmem_option_set("slab_purge_delay_ms", "3600000") == 0);
    require(hakmem_option_set("purge_delay_ms", "3600000") == 0);
    require(hakmem_option_set("excess_bytes", "1G") == 0);
}

static void require_trimmed(size_t least) {
    const size_t before = rss_bytes();
    const size_t trimmed = hakmem_trim();
    const size_t after = rss_bytes();
    require_that(trimmed > least, "%zu bytes were given back", trimmed);
    require_that(after + least < before, "resident %zu, then %zu", before, after);
}

static void trim_returns_bytes(void) {
    enum { COUNT = 64, BYTES = 100000 };
    void *blocks[COUNT];
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = malloc(BYTES);
        require(blocks[i] != NULL);
        memset(blocks[i], 1, BYTES);
    }
    keep_what_is_freed();
    for (int i = 0; i < COUNT; i++) {
        free(blocks[i]);
    }
    require_trimmed(COUNT * BYTES / 2);
    require(hakmem_option_set("purge_delay_ms", "7") == 0);
}

// What is given back inside of slabs, which hold live blocks, counts.
static void trim_returns_bytes_inside_slabs(void) {
    enum { COUNT = 2048, BYTES = 4000 };
    static void *blocks[COUNT];
    // So that between two live blocks there are pages of the machine.
    const int every = (int)(sysconf(_SC_PAGESIZE) / 4096 * 8);
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = malloc(BYTES);
        require(blocks[i] != NULL);
        memset(blocks[i], 1, BYTES);
    }
    keep_what_is_freed();
    hakmem_trim();
    for (int i = 0; i < COUNT; i++) {
        if (i % every != 0) {
            free(blocks[i]);
        }
    }
    require_trimmed(COUNT * BYTES / 2);
    require(malloc_trim(0) == 0);
    for (int i = 0; i < COUNT; i += every) {
        free(blocks[i]);
    }
    require(hakmem_option_set("purge_delay_ms", "7") == 0);
}

static void snapshots_tell_whether_they_are_whole(void) {
    errno = 0;
    require(hakmem_snapshot_fd(-1) == -1 && errno == EBADF);
    FILE *file = tmpfile();
    require(file != NULL);
    require(hakmem_snapshot_fd(fileno(file)) == 0);
    fclose(file);
}

int main(void) {
    require_that(first_set == 0, "the first call returned %d", first_set);
    behaviour_require_allocator();
    refused("no_such_option", "1");
    refused("", "1");
    refused("prewarm", "3");  // read at start-up
    refused("purge_delay_ms", "soon");
    refused("purge_delay_ms", "");
    refused("purge_delay_ms", "-1");
    refused("purge_delay_ms", "3600001");
    behaviour_say("set");
    char byte;
    require(read(STDIN_FILENO, &byte, 1) == 0);
    trim_returns_bytes();
    trim_returns_bytes_inside_slabs();
    snapshots_tell_whether_they_are_whole();
    behaviour_require_sound_heap();
    return 0;
}
