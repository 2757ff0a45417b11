// A plug-in in C++ for programs in C: each case returns 0, or the line that found something else than libstdc++'s operators do.
#include <cstddef>
#include <new>
#include <sys/resource.h>

#define EXPECT(condition)    \
    do {                     \
        if (!(condition)) {  \
            return __LINE__; \
        }                    \
    } while (0)

// What a compiler cannot see into, nor warn of.
static volatile std::size_t impossible_bytes = std::size_t{1} << 61;
static volatile std::size_t alignment_bytes = 256;

static std::align_val_t alignment() {
    return std::align_val_t{alignment_bytes};
}

using form = void *(*)(std::size_t bytes);
static const form throwing[] = {
    [](std::size_t bytes) { return ::operator new(bytes); },
    [](std::size_t bytes) { return ::operator new[](bytes); },
    [](std::size_t bytes) { return ::operator new(bytes, alignment()); },
    [](std::size_t bytes) { return ::operator new[](bytes, alignment()); },
};
static const form returning[] = {
    [](std::size_t bytes) { return ::operator new(bytes, std::nothrow); },
    [](std::size_t bytes) { return ::operator new[](bytes, std::nothrow); },
    [](std::size_t bytes) { return ::operator new(bytes, alignment(), std::nothrow); },
    [](std::size_t bytes) { return ::operator new[](bytes, alignment(), std::nothrow); },
};

enum outcome { BLOCK, NOTHING, BAD_ALLOC, NUMBER };

static int unwound_count;

// With something in its frame that must be undone.
static outcome outcome_of(form take) {
    struct note {
        ~note() {
            unwound_count++;
        }
    };
    try {
        const note undone;
        return take(impossible_bytes) == nullptr ? NOTHING : BLOCK;
    } catch (const std::bad_alloc &) {
        return BAD_ALLOC;
    } catch (int) {
        return NUMBER;
    }
}

static int calls_left;
static int calls_count;

static void gives_up() {
    calls_count++;
    if (--calls_left == 0) {
        std::set_new_handler(nullptr);
    }
}

static void throws_number() {
    calls_count++;
    throw 1;
}

static void throws_bad_alloc() {
    calls_count++;
    throw std::bad_alloc();
}

extern "C" int without_handler() {
    for (form take : throwing) {
        const int before = unwound_count;
        EXPECT(outcome_of(take) == BAD_ALLOC);
        EXPECT(unwound_count == before + 1);
    }
    return 0;
}

extern "C" int nothrow_without_handler() {
    for (form take : returning) {
        EXPECT(outcome_of(take) == NOTHING);
    }
    return 0;
}

extern "C" int handler_is_called() {
    for (form take : throwing) {
        calls_count = 0;
        calls_left = 3;
        std::set_new_handler(gives_up);
        EXPECT(outcome_of(take) == BAD_ALLOC);
        EXPECT(calls_count == 3);
    }
    return 0;
}

extern "C" int nothrow_handler_is_called() {
    for (form take : returning) {
        calls_count = 0;
        calls_left = 3;
        std::set_new_handler(gives_up);
        EXPECT(outcome_of(take) == NOTHING);
        EXPECT(calls_count == 3);
    }
    return 0;
}

extern "C" int handler_may_throw() {
    calls_count = 0;
    for (form take : throwing) {
        std::set_new_handler(throws_number);
        EXPECT(outcome_of(take) == NUMBER);
        std::set_new_handler(throws_bad_alloc);
        EXPECT(outcome_of(take) == BAD_ALLOC);
    }
    EXPECT(calls_count == 8);
    return 0;
}

extern "C" int nothrow_handler_may_throw() {
    calls_count = 0;
    for (form take : returning) {
        std::set_new_handler(throws_number);
        EXPECT(outcome_of(take) == NOTHING);
        std::set_new_handler(throws_bad_alloc);
        EXPECT(outcome_of(take) == NOTHING);
    }
    EXPECT(calls_count == 8);
    return 0;
}

static void lifts_limit() {
    struct rlimit limit;
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_AS, &limit);
    calls_count++;
}

// A request that can be served once the handler has made room. Each is larger than the one before, which may be kept.
static int take_what_needs_room(form take, std::size_t bytes) {
    struct rlimit limit;
    EXPECT(getrlimit(RLIMIT_AS, &limit) == 0);
    limit.rlim_cur = std::size_t{128} << 20;
    EXPECT(setrlimit(RLIMIT_AS, &limit) == 0);
    calls_count = 0;
    std::set_new_handler(lifts_limit);
    void *block = take(bytes);
    EXPECT(block != nullptr);
    EXPECT(calls_count == 1);
    ::operator delete(block);
    return 0;
}

extern "C" int handler_makes_room() {
    int line = 0;
    for (std::size_t i = 0; i < 4 && line == 0; i++) {
        line = take_what_needs_room(throwing[i], (i + 1) << 28);
    }
    return line;
}

extern "C" int nothrow_handler_makes_room() {
    int line = 0;
    for (std::size_t i = 0; i < 4 && line == 0; i++) {
        line = take_what_needs_room(returning[i], (i + 1) << 28);
    }
    return line;
}

extern "C" int refused_alignment() {
    calls_count = 0;
    std::set_new_handler(throws_number);
    alignment_bytes = 24;
    for (int i = 2; i < 4; i++) {
        EXPECT(outcome_of(throwing[i]) == BAD_ALLOC);
        EXPECT(outcome_of(returning[i]) == NOTHING);
    }
    EXPECT(calls_count == 0);
    return 0;
}
