// page_map_cover() of one window by two threads that each enter a superslab, and a third that looks both up:
// one window is made, whoever finds it finds it complete, and no superslab is lost. This is the
// fallback, in which the entries are a piece of metadata, too.
#include "main.h"
#include "space/page_map.h"
#include "stubs.h"

#define ADDRESS ((uintptr_t)5 << WINDOW_SHIFT)

// The superslabs, whose descriptors two threads make.
static uint64_t descriptors[2];

static void enter(unsigned number) {
    const uintptr_t address = ADDRESS + number * SUPERSLAB_BYTES;
    explorer_fresh(&descriptors[number], sizeof descriptors[number]);
    EXPECT(page_map_cover(address, SUPERSLAB_BYTES));
    page_map_set(address, 1, 7 + number);
    page_map_set_superslab(address, (struct superslab *)&descriptors[number]);
}

static void enter_first(void) {
    enter(0);
}

static void enter_second(void) {
    enter(1);
}

static void look_up(void) {
    for (unsigned i = 0; i < 2; i++) {
        const uintptr_t address = ADDRESS + i * SUPERSLAB_BYTES;
        struct superslab *found = page_map_superslab(address);
        EXPECT(found == NULL || found == (struct superslab *)&descriptors[i]);
        EXPECT(found == NULL || page_map_get(address) == 7 + i);
    }
}

static void begin(void) {
    stubs_begin();
}

static void end(void) {
    for (unsigned i = 0; i < 2; i++) {
        const uintptr_t address = ADDRESS + i * SUPERSLAB_BYTES;
        EXPECT(page_map_superslab(address) == (struct superslab *)&descriptors[i]);
        EXPECT(page_map_get(address) == 7 + i);
    }
}

const struct program explored = {
    .name = "window",
    .thread_count = 3,
    .threads = {enter_first, enter_second, look_up},
    .begin = begin,
    .shares_all = true,
    .end = end,
};

const struct weakening weakenings[] = {
    {"&page_map_windows[", RELEASE},
    {"&page_map_windows[", ACQUIRE},
    {"superslabs[", RELEASE},
    {"superslabs[", ACQUIRE},
    {NULL, 0},
};
