// A treap of address ranges in one fixed array, behind a mutex. Priorities come from a hash of the
// address, so its shape depends on the set only.
#include "reference.h"

#include "behaviour.h"

struct node {
    uintptr_t start;
    size_t bytes;
    uint32_t left;
    uint32_t right;
    uint32_t priority;
};

// Index 0 is "none"; free nodes are linked through `left`.
static struct node *nodes;
static uint32_t root;
static uint32_t unused;
static uint32_t live;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void reference_init(uint32_t capacity) {
    nodes = (struct node *)test_memory(((size_t)capacity + 1) * sizeof *nodes);
    for (uint32_t i = 1; i <= capacity; i++) {
        nodes[i].left = i < capacity ? i + 1 : 0;
    }
    unused = 1;
}

static uint32_t priority_of(uintptr_t start) {
    uint64_t seed = start;
    return (uint32_t)behaviour_random(&seed);
}

// Splits a tree into the ranges that start below `start` and the others.
static void split(uint32_t tree, uintptr_t start, uint32_t *below, uint32_t *others) {
    while (tree != 0) {
        if (nodes[tree].start < start) {
            *below = tree;
            below = &nodes[tree].right;
            tree = *below;
        } else {
            *others = tree;
            others = &nodes[tree].left;
            tree = *others;
        }
    }
    *below = 0;
    *others = 0;
}

// The ranges of `low` all lie below those of `high`.
static uint32_t merge(uint32_t low, uint32_t high) {
    uint32_t result = 0;
    uint32_t *place = &result;
    while (low != 0 && high != 0) {
        if (nodes[low].priority >= nodes[high].priority) {
            *place = low;
            place = &nodes[low].right;
            low = *place;
        } else {
            *place = high;
            place = &nodes[high].left;
            high = *place;
        }
    }
    *place = low != 0 ? low : high;
    return result;
}

// The live range that overlaps [start, start + bytes), or 0.
static uint32_t find_overlap(uintptr_t start, size_t bytes) {
    uint32_t at = root;
    while (at != 0) {
        if (nodes[at].start >= start + bytes) {
            at = nodes[at].left;
        } else if (nodes[at].start + nodes[at].bytes <= start) {
            at = nodes[at].right;
        } else {
            return at;
        }
    }
    return 0;
}

bool reference_add(uintptr_t start, size_t bytes, uintptr_t *other_start, size_t *other_bytes) {
    if (bytes == 0) {
        bytes = 1;
    }
    pthread_mutex_lock(&lock);
    uint32_t other = find_overlap(start, bytes);
    if (other != 0) {
        *other_start = nodes[other].start;
        *other_bytes = nodes[other].bytes;
        pthread_mutex_unlock(&lock);
        return false;
    }
    uint32_t node = unused;
    require_that(node != 0, "the reference is full");
    unused = nodes[node].left;
    nodes[node] = (struct node){start, bytes, 0, 0, priority_of(start)};
    uint32_t *place = &root;
    while (*place != 0 && nodes[*place].priority > nodes[node].priority) {
        place = nodes[*place].start < start ? &nodes[*place].right : &nodes[*place].left;
    }
    split(*place, start, &nodes[node].left, &nodes[node].right);
    *place = node;
    live++;
    pthread_mutex_unlock(&lock);
    return true;
}

bool reference_remove(uintptr_t start) {
    pthread_mutex_lock(&lock);
    uint32_t *place = &root;
    while (*place != 0 && nodes[*place].start != start) {
        place = nodes[*place].start < start ? &nodes[*place].right : &nodes[*place].left;
    }
    uint32_t node = *place;
    if (node != 0) {
        *place = merge(nodes[node].left, nodes[node].right);
        nodes[node].left = unused;
        unused = node;
        live--;
    }
    pthread_mutex_unlock(&lock);
    return node != 0;
}

uint32_t reference_count(void) {
    return live;
}
