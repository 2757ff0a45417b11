// The intrusive list against arrays.
#include "isolate.h"

#include <string.h>

#include "base/bits.h"
#include "base/list.h"

enum { LIST_COUNT = 3, NODE_COUNT = 40, OPERATIONS = 20000 };

static struct list heads[LIST_COUNT];
static struct list nodes[NODE_COUNT];

// What the lists should be: nodes by number, in order.
static struct {
    int nodes[NODE_COUNT];
    int count;
} expected[LIST_COUNT];

static void expect_insert(int list, int place, int node) {
    memmove(&expected[list].nodes[place + 1], &expected[list].nodes[place],
            (size_t)(expected[list].count - place) * sizeof(int));
    expected[list].nodes[place] = node;
    expected[list].count++;
}

// The node's list and place, or -1.
static int find(int node, int *place) {
    for (int list = 0; list < LIST_COUNT; list++) {
        for (*place = 0; *place < expected[list].count; ++*place) {
            if (expected[list].nodes[*place] == node) {
                return list;
            }
        }
    }
    return -1;
}

static void compare(void) {
    for (int list = 0; list < LIST_COUNT; list++) {
        const struct list *link = heads[list].next;
        for (int i = 0; i < expected[list].count; i++, link = link->next) {
            assert_ptr_equal(link, &nodes[expected[list].nodes[i]]);
            assert_ptr_equal(link->next->previous, link);
            assert_ptr_equal(link->previous->next, link);
        }
        assert_ptr_equal(link, &heads[list]);
        assert_int_equal(list_is_empty(&heads[list]), expected[list].count == 0);
    }
}

static void test_random_operations(void **state) {
    (void)state;
    uint64_t random_state = test_seed();
    for (int i = 0; i < LIST_COUNT; i++) {
        list_init(&heads[i]);
    }
    for (int i = 0; i < NODE_COUNT; i++) {
        list_init(&nodes[i]);
    }
    for (int n = 0; n < OPERATIONS; n++) {
        const int node = (int)(random_next(&random_state) % NODE_COUNT);
        const int list = (int)(random_next(&random_state) % LIST_COUNT);
        int place;
        const int on = find(node, &place);
        if (on >= 0) {
            list_remove(&nodes[node]);
            assert_true(list_is_empty(&nodes[node]));
            expected[on].count--;
            memmove(&expected[on].nodes[place], &expected[on].nodes[place + 1],
                    (size_t)(expected[on].count - place) * sizeof(int));
        } else if (n % 3 == 0) {
            list_push_front(&heads[list], &nodes[node]);
            expect_insert(list, 0, node);
        } else if (n % 3 == 1 || expected[list].count == 0) {
            list_push_back(&heads[list], &nodes[node]);
            expect_insert(list, expected[list].count, node);
        } else {
            const int after = (int)(random_next(&random_state) % (unsigned)expected[list].count);
            list_insert_after(&nodes[expected[list].nodes[after]], &nodes[node]);
            expect_insert(list, after + 1, node);
        }
        compare();
    }
}

static void test_removing_twice_is_harmless(void **state) {
    (void)state;
    struct list head;
    struct list first;
    struct list second;
    list_init(&head);
    list_push_back(&head, &first);
    list_push_back(&head, &second);
    list_remove(&first);
    list_remove(&first);
    assert_ptr_equal(head.next, &second);
    assert_ptr_equal(head.previous, &second);
    list_remove(&second);
    list_remove(&second);
    assert_true(list_is_empty(&head));
}

struct holder {
    int before;
    struct list link;
};

static void test_container_of(void **state) {
    (void)state;
    struct holder holder = {1, {NULL, NULL}};
    assert_ptr_equal(CONTAINER_OF(&holder.link, struct holder, link), &holder);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_operations),
        cmocka_unit_test(test_removing_twice_is_harmless),
        cmocka_unit_test(test_container_of),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
