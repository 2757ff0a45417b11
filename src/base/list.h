// An intrusive doubly linked list with a sentinel head. A node is on at most one list; a node that
// is on none links to itself, so removing it twice is harmless.
#pragma once

#include "base/base.h"

struct list {
    struct list *next, *previous;
};

static inline void list_init(struct list *node) {
    node->next = node->previous = node;
}

static inline bool list_is_empty(const struct list *head) {
    return head->next == head;
}

static inline void list_insert_after(struct list *place, struct list *node) {
    node->previous = place;
    node->next = place->next;
    place->next->previous = node;
    place->next = node;
}

static inline void list_push_front(struct list *head, struct list *node) {
    list_insert_after(head, node);
}

static inline void list_push_back(struct list *head, struct list *node) {
    list_insert_after(head->previous, node);
}

static inline void list_remove(struct list *node) {
    node->previous->next = node->next;
    node->next->previous = node->previous;
    list_init(node);
}
