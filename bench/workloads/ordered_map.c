/* ordered_map: a search tree of small nodes is filled in random order of its keys, looked through, and dropped in the order of the keys,
 * over and over (as std::map and std::set are by C++ programs). So blocks are freed in an order that has nothing to do with their
 * addresses, and what they are handed out in next decides how far apart the next tree's nodes lie. */
#include "frame.h"

static const struct frame_workload ordered_map = {
    .name = "ordered_map",
    .unit = "nodes inserted, found and dropped",
};

/* Random keys make a tree of 10 thousand nodes some 30 deep, one of a billion some 90: what is deeper has lost its contents. */
enum { DEPTH_MOST = 200 };

/* As long as a node of std::map<int, long>. The mark is what the key says. */
struct node {
    uint64_t key, mark;
    struct node *left, *right;
    uint64_t value[2];
};

static void insert(struct node **root, uint64_t key) {
    struct node **place = root;
    for (unsigned depth = 0; *place != NULL; depth++) {
        if (__builtin_expect(depth == DEPTH_MOST, 0)) {
            frame_fail_block(*place, "lost its contents");
        }
        place = key < (*place)->key ? &(*place)->left : &(*place)->right;
    }
    struct node *node = malloc(sizeof *node);
    if (__builtin_expect(node == NULL, 0)) {
        frame_fail_empty(sizeof *node);
    }
    *node = (struct node){.key = key, .mark = frame_random_mix(key), .value = {~key, key}};
    *place = node;
}

/* The value of a key that is there. */
static uint64_t find(const struct node *root, uint64_t key) {
    const struct node *node = root;
    for (unsigned depth = 0; node != NULL && depth <= DEPTH_MOST; depth++) {
        if (node->key == key) {
            return node->value[0];
        }
        node = key < node->key ? node->left : node->right;
    }
    frame_fail_block(root, "lost its contents");
}

/* In the order of the keys, after a comparison of each mark. */
static void drop(struct node *node, bool check) {
    while (node != NULL) {
        drop(node->left, check);
        if (__builtin_expect(node->mark != frame_random_mix(node->key), 0) && check) {
            frame_fail_block(node, "lost its contents");
        }
        struct node *right = node->right;
        free(node);
        node = right;
    }
}

/* Whole trees, at least one. Returns how many. */
static uint64_t run(const struct frame_options *options, struct frame_random *random, uint64_t ops,
                    uint64_t *checksum) {
    const size_t count = options->slot_count;
    const uint64_t rounds = frame_rounds(options, ops, count);
    for (uint64_t round = 0; round < rounds; round++) {
        struct frame_random keys = *random;
        struct node *root = NULL;
        for (size_t i = 0; i < count; i++) {
            insert(&root, frame_random_next(random));
        }
        for (size_t i = 0; i < count; i++) {
            *checksum += find(root, frame_random_next(&keys));
        }
        drop(root, options->check);
    }
    return rounds;
}

int main(int argc, char **argv) {
    struct frame_options options = {
        .workload = &ordered_map,
        .seed = 67,
        .ops = 3000000,
        .warm_ops = 1,
        .slot_count = 10000,
        .bytes_min = sizeof(struct node),
        .bytes_max = sizeof(struct node),
    };
    frame_options_parse(&options, argc, argv);
    frame_floor_circle(2 * options.slot_count * sizeof(struct node));
    struct frame_random random = frame_random_make(options.seed, 0);
    uint64_t checksum = 0;
    run(&options, &random, options.warm_ops, &checksum);
    frame_start();
    const uint64_t rounds = run(&options, &random, options.ops, &checksum);
    frame_stop();
    frame_report(&options, rounds * options.slot_count, checksum);
    return 0;
}
