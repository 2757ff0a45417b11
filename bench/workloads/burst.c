/* burst: trees like those of a JSON parser, built node by node and dropped as a whole. A node has a
 * key, and text or a list of children that grows by realloc while the children are parsed. A few
 * documents live at once; the oldest is dropped when the next is built. Allocation comes in bursts
 * of small blocks of mixed sizes, and so do the frees, in depth-first order. */
#include "frame.h"

enum { DEPTH_MAX = 8, CHILDREN_MAX = 12, LIST_FIRST = 4, KEY_BYTES_MIN = 8, KEY_BYTES_RANGE = 24 };
/* Shares of all nodes, in percent. */
enum { CONTAINERS = 20, TEXTS = 60, KEYS = 70 };

static const struct frame_workload burst = {
    .name = "burst",
    .unit = "tree nodes built and dropped",
};

/* The children of a node: its slots from the second on. The first word of the block is the stamp's
 * upper half again, which tells whether the block is still its own. */
struct list {
    struct frame_slot *slots;
    uint32_t count, capacity; /* without the first */
    uint64_t mark;
};

struct node {
    uint64_t first_mark;
    struct frame_slot key, text;
    struct list children;
    uint64_t last_mark;
};

struct parser {
    const struct frame_options *options;
    struct frame_random random;
    uint64_t nodes_left; /* of the document */
};

static void node_parse(struct parser *parser, struct frame_slot *slot, unsigned depth);

/* Room for one more child, doubled when there is none. */
static struct frame_slot *list_extend(struct list *list) {
    if (list->count == list->capacity) {
        list->capacity = list->capacity == 0 ? LIST_FIRST : 2 * list->capacity;
        const size_t bytes = (list->capacity + 1) * sizeof *list->slots;
        list->slots = realloc(list->slots, bytes);
        if (list->slots == NULL) {
            frame_fail_empty(bytes);
        }
        list->slots[0].stamp = list->mark;
        list->slots[0].block = (unsigned char *)list->slots;
    }
    return &list->slots[++list->count];
}

static void list_look(const struct list *list, bool check) {
    const struct frame_slot *first = list->slots;
    if (first != NULL && check &&
        (first->block != (const unsigned char *)first || first->stamp != list->mark)) {
        frame_fail_block(first, "lost its contents");
    }
}

static void children_parse(struct parser *parser, struct list *list, unsigned count,
                           unsigned depth) {
    list->mark = frame_random_next(&parser->random);
    for (unsigned i = 0; i < count && parser->nodes_left > 0; i++) {
        struct frame_slot child;
        node_parse(parser, &child, depth + 1);
        *list_extend(list) = child;
    }
}

static void node_parse(struct parser *parser, struct frame_slot *slot, unsigned depth) {
    const uint64_t bits = frame_random_next(&parser->random);
    const uint64_t more = frame_random_next(&parser->random);
    struct node node = {0};
    parser->nodes_left--;
    frame_take(slot, sizeof node, frame_random_mix(bits));
    if (frame_random_below(bits, 100) < KEYS) {
        frame_take(&node.key, KEY_BYTES_MIN + frame_random_below(bits >> 32, KEY_BYTES_RANGE),
                   frame_random_mix(more));
    }
    const size_t kind = frame_random_below(more, 100);
    if (depth == 0) {
        children_parse(parser, &node.children, UINT32_MAX, depth);
    } else if (kind < CONTAINERS && depth < DEPTH_MAX) {
        children_parse(parser, &node.children,
                       1 + (unsigned)frame_random_below(more >> 32, CHILDREN_MAX), depth);
    } else if (kind < CONTAINERS + TEXTS) {
        frame_take(&node.text, frame_bytes_pick(parser->options, more), frame_random_mix(more));
    }
    /* All between the marks, which frame_take has written. */
    __builtin_memcpy(slot->block + sizeof node.first_mark, &node.key,
                     sizeof node - 2 * sizeof node.first_mark);
}

/* What the program wanted the document for: reads all of it. */
static uint64_t node_sum(const struct frame_slot *slot, bool check) {
    const struct node *node = (const struct node *)(const void *)slot->block;
    frame_look(slot, check);
    uint64_t sum = 1;
    if (node->text.block != NULL) {
        frame_look(&node->text, check);
        sum += node->text.block[0];
    }
    list_look(&node->children, check);
    for (uint32_t i = 1; i <= node->children.count; i++) {
        sum += node_sum(&node->children.slots[i], check);
    }
    return sum;
}

static uint64_t node_drop(struct frame_slot *slot, bool check) {
    struct node *node = (struct node *)(void *)slot->block;
    uint64_t checksum = 0;
    frame_look(slot, check);
    list_look(&node->children, check);
    for (uint32_t i = 1; i <= node->children.count; i++) {
        checksum += node_drop(&node->children.slots[i], check);
    }
    free(node->children.slots);
    checksum += frame_drop_all(&node->text, 1, check);
    checksum += frame_drop_all(&node->key, 1, check);
    return checksum + frame_drop(slot, check);
}

static uint64_t documents_run(const struct frame_options *options, struct parser *parser,
                              struct frame_slot *documents, uint64_t count) {
    uint64_t checksum = 0;
    for (uint64_t i = 0; i < count; i++) {
        struct frame_slot *document = &documents[i % options->slot_count];
        if (document->block != NULL) {
            checksum += node_drop(document, options->check);
        }
        parser->nodes_left = options->round_count;
        node_parse(parser, document, 0);
        checksum += node_sum(document, options->check);
    }
    return checksum;
}

int main(int argc, char **argv) {
    struct frame_options options = {
        .workload = &burst,
        .seed = 47,
        .ops = 2000000,
        .warm_ops = 20000,
        .slot_count = 4,
        .bytes_min = 8,
        .bytes_max = 2048,
        .round_count = 2000, /* nodes of a document */
        .sizes = FRAME_PARETO,
    };
    frame_options_parse(&options, argc, argv);
    struct frame_slot *documents = frame_map(options.slot_count * sizeof *documents);
    struct parser parser = {&options, frame_random_make(options.seed, 0), 0};
    const uint64_t count = (options.ops + options.round_count - 1) / options.round_count;
    frame_floor_circle((options.slot_count + 2) * options.round_count * 512);
    uint64_t checksum =
        documents_run(&options, &parser, documents, options.warm_ops / options.round_count);
    frame_start();
    checksum += documents_run(&options, &parser, documents, count);
    frame_stop();
    for (size_t i = 0; i < options.slot_count; i++) {
        if (documents[i].block != NULL) {
            checksum += node_drop(&documents[i], options.check);
        }
    }
    frame_report(&options, count * options.round_count, checksum);
    return 0;
}
