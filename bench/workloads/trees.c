/* trees: binary trees of small nodes, built top down and dropped whole, while one large tree lives on (after the binary-trees
 * program of the Computer Language Benchmarks Game; Ellis, Kovac and Boehm's GCBench). Trees of every fourth depth up to
 * the largest, of each as many nodes: small ones live in a cache, the largest do not. */
#include "frame.h"

enum { DEPTH_MIN = 4, DEPTH_STEP = 4, DEPTH_MOST = 30 };

static uint64_t depth_max = 16;

static const struct frame_workload trees = {
    .name = "trees",
    .unit = "nodes built and dropped",
    .own = (const struct frame_own_option[]){{"--depth", &depth_max}, {NULL, NULL}},
};

/* The mark is what its place in the tree says: no block can be another node's unseen. */
struct node {
    uint64_t mark;
    struct node *left, *right;
};

static struct node *tree_build(uint64_t mark, unsigned depth) {
    struct node *node = malloc(sizeof *node);
    if (__builtin_expect(node == NULL, 0)) {
        frame_fail_empty(sizeof *node);
    }
    node->mark = mark;
    node->left = depth == 0 ? NULL : tree_build(frame_random_mix(mark) + 1, depth - 1);
    node->right = depth == 0 ? NULL : tree_build(frame_random_mix(mark) + 3, depth - 1);
    return node;
}

/* Drops the tree after a comparison of each mark; returns its share of the checksum. */
static uint64_t tree_drop(struct node *node, uint64_t mark, unsigned depth, bool check) {
    if (__builtin_expect(node->mark != mark, 0) && check) {
        frame_fail_block(node, "lost its contents");
    }
    uint64_t checksum = mark;
    if (depth != 0) {
        checksum += tree_drop(node->left, frame_random_mix(mark) + 1, depth - 1, check);
        checksum += tree_drop(node->right, frame_random_mix(mark) + 3, depth - 1, check);
    }
    free(node);
    return checksum;
}

static uint64_t nodes_of(uint64_t depth) {
    return (UINT64_C(2) << depth) - 1;
}

/* Of each depth at least one tree. Counts their nodes. */
static uint64_t trees_run(const struct frame_options *options, uint64_t ops, uint64_t *nodes) {
    const uint64_t depths = (depth_max - DEPTH_MIN) / DEPTH_STEP + 1;
    struct frame_random random = frame_random_make(options->seed, 0);
    uint64_t checksum = 0;
    for (uint64_t depth = DEPTH_MIN; depth <= depth_max; depth += DEPTH_STEP) {
        const uint64_t count = 1 + ops / depths / nodes_of(depth);
        for (uint64_t i = 0; i < count; i++) {
            const uint64_t mark = frame_random_next(&random);
            struct node *tree = tree_build(mark, (unsigned)depth);
            checksum += tree_drop(tree, mark, (unsigned)depth, options->check);
        }
        *nodes += count * nodes_of(depth);
    }
    return checksum;
}

int main(int argc, char **argv) {
    struct frame_options options = {
        .workload = &trees,
        .seed = 61,
        .ops = 8000000,
        .warm_ops = 1,
        .bytes_min = sizeof(struct node),
        .bytes_max = sizeof(struct node),
    };
    frame_options_parse(&options, argc, argv);
    if (depth_max < DEPTH_MIN || depth_max > DEPTH_MOST) {
        frame_fail("trees: a depth of 4 to 30");
    }
    /* Outside of the floor's circle. */
    struct node *lasting = tree_build(options.seed, (unsigned)depth_max);
    frame_floor_circle(2 * nodes_of(depth_max) * 32);
    uint64_t nodes = 0;
    uint64_t checksum = trees_run(&options, options.warm_ops, &nodes);
    nodes = 0;
    frame_start();
    checksum += trees_run(&options, options.ops, &nodes);
    frame_stop();
    checksum += tree_drop(lasting, options.seed, (unsigned)depth_max, options.check);
    frame_report(&options, nodes, checksum);
    return 0;
}
