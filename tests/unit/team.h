// Several threads of a test that do the same at the same time.
#pragma once

#include "isolate.h"

#include <pthread.h>

enum { TEAM_MAX = 8 };

struct team {
    unsigned (*body)(uint64_t seed);
    pthread_barrier_t ready;
    unsigned count;
    struct team_member {
        struct team *team;
        uint64_t seed;  // of its own
        pthread_t thread;
    } members[TEAM_MAX];
};

static inline void *team_member_main(void *argument) {
    struct team_member *member = argument;
    pthread_barrier_wait(&member->team->ready);
    return (void *)(uintptr_t)member->team->body(member->seed);
}

// Calls `body` in `count` threads, which all wait until every one is there; each gets a seed of its
// own, made from `seed` and never 0.
static inline void team_start(struct team *team, unsigned count, uint64_t seed,
                              unsigned (*body)(uint64_t seed)) {
    assert_in_range(count, 1, TEAM_MAX);
    *team = (struct team){.body = body, .count = count};
    pthread_barrier_init(&team->ready, NULL, count);
    for (unsigned i = 0; i < count; i++) {
        struct team_member *member = &team->members[i];
        member->team = team;
        member->seed = (seed + i * UINT64_C(7919)) | 1;
        assert_int_equal(pthread_create(&member->thread, NULL, team_member_main, member), 0);
    }
}

// The sum of what the bodies returned.
static inline unsigned team_join(struct team *team) {
    unsigned sum = 0;
    for (unsigned i = 0; i < team->count; i++) {
        void *result;
        pthread_join(team->members[i].thread, &result);
        sum += (unsigned)(uintptr_t)result;
    }
    pthread_barrier_destroy(&team->ready);
    return sum;
}
