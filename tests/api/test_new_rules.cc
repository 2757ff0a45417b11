// What the language says of operator new and delete beyond the forms themselves: who is called when
// memory is wanting or a constructor throws, and which alignments are none. No test library, so that
// the program can be linked fully static.
#include "behaviour.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t too_large = PTRDIFF_MAX;
const auto wide = std::align_val_t{256};

enum class Outcome { block, null, bad_alloc, other };

template <typename Call> Outcome outcome_of(Call call) {
    try {
        return opaque_pointer(call()) == nullptr ? Outcome::null : Outcome::block;
    } catch (const std::bad_alloc &error) {
        require(std::strstr(error.what(), "bad_alloc") != nullptr ||
                std::strstr(error.what(), "bad_array_new_length") != nullptr);
        return Outcome::bad_alloc;
    } catch (...) {
        return Outcome::other;
    }
}

int handler_calls;

// ---- Alignments that are none

void alignment_that_is_no_power_of_two() {
    for (std::size_t alignment : {0, 3, 6, 24, 100, 4097}) {
        const auto odd = static_cast<std::align_val_t>(opaque(alignment));
        // A handler could not help: it must not be called for ever.
        handler_calls = 0;
        std::set_new_handler([] { handler_calls++; });
        require(outcome_of([&] { return ::operator new(100, odd); }) == Outcome::bad_alloc);
        require(outcome_of([&] { return ::operator new[](100, odd); }) == Outcome::bad_alloc);
        require(::operator new(100, odd, std::nothrow) == nullptr);
        require(::operator new[](100, odd, std::nothrow) == nullptr);
        require(handler_calls == 0);
        std::set_new_handler(nullptr);
    }
}

void alignment_to_1_gib() {
    for (std::size_t alignment = 1; alignment <= GIB; alignment *= 2) {
        const auto align = static_cast<std::align_val_t>(alignment);
        void *one = ::operator new(100, align);
        void *two = ::operator new[](100, align, std::nothrow);
        require(one != two && aligned_to(one, alignment) && aligned_to(two, alignment));
        std::memset(one, 1, 100);
        std::memset(two, 2, 100);
        ::operator delete(one, 100, align);
        ::operator delete[](two, align, std::nothrow);
    }
    const auto none = static_cast<std::align_val_t>(opaque(std::size_t{1} << 63));
    require(outcome_of([&] { return ::operator new(1, none); }) == Outcome::bad_alloc);
    require(::operator new(1, none, std::nothrow) == nullptr);
}

// ---- Zero bytes

void every_form_of_zero_bytes_is_a_block_of_its_own() {
    std::vector<void *> blocks;
    for (int i = 0; i < 50; i++) {
        blocks.push_back(::operator new(opaque(0)));
        blocks.push_back(::operator new[](opaque(0)));
        blocks.push_back(::operator new(opaque(0), std::nothrow));
        blocks.push_back(::operator new[](opaque(0), std::nothrow));
    }
    std::vector<void *> sorted = blocks;
    std::sort(sorted.begin(), sorted.end());
    require(sorted.front() != nullptr);
    require(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end());
    for (void *block : blocks) {
        ::operator delete(block);
    }
}

// ---- Agreement with the C side

void blocks_cross_between_the_languages() {
    for (std::size_t bytes = 1; bytes < 8 * MIB; bytes = bytes * 3 + 1) {
        const std::array<void *, 6> made = {
            ::operator new(bytes),       ::operator new[](bytes),
            ::operator new(bytes, wide), ::operator new[](bytes, wide, std::nothrow),
            std::malloc(bytes),          aligned_alloc(256, bytes),
        };
        for (std::size_t i = 0; i < made.size(); i++) {
            pattern_fill(made[i], bytes, i);
        }
        for (std::size_t i = 0; i < made.size(); i++) {
            require(malloc_usable_size(made[i]) >= bytes);
            void *block = made[i];
            if (i % 2 == 0) {
                block = std::realloc(block, bytes * 2);
                require(block != nullptr);
            }
            require(pattern_differs(block, bytes, i) == bytes);
            // What new made goes to free, what malloc made to delete: both sides are one heap.
            if (i < 4) {
                std::free(block);
            } else {
                ::operator delete(block);
            }
        }
    }
}

void delete_keeps_errno() {
    for (std::size_t bytes : {std::size_t{1}, std::size_t{5000}, 100 * KIB, 3 * MIB, 40 * MIB}) {
        void *one = ::operator new(bytes);
        void *two = ::operator new[](bytes);
        void *three = ::operator new(bytes, wide);
        errno = 4711;
        ::operator delete(one, bytes);
        ::operator delete[](two);
        ::operator delete(three, bytes, wide);
        require(errno == 4711);
    }
}

// ---- new_handler

void handler_that_throws_something_else() {
    std::set_new_handler([] { throw std::out_of_range("no"); });
    const std::size_t bytes = opaque(too_large);
    require(outcome_of([&] { return ::operator new(bytes); }) == Outcome::other);
    require(outcome_of([&] { return ::operator new[](bytes, wide); }) == Outcome::other);
    require(::operator new(bytes, std::nothrow) == nullptr);
    require(::operator new[](bytes, wide, std::nothrow) == nullptr);
    std::set_new_handler(nullptr);
}

std::vector<void *> reserve;

void give_back_one() {
    handler_calls++;
    if (reserve.empty()) {
        throw std::bad_alloc();
    }
    std::free(reserve.back());
    reserve.pop_back();
}

void limit_address_space(std::size_t bytes) {
    const rlim_t most = bytes == 0 ? RLIM_INFINITY : bytes;
    const struct rlimit limit = {most, RLIM_INFINITY};
    require(setrlimit(RLIMIT_AS, &limit) == 0);
}

// Memory really runs out, and the handler finds some: new goes on as if nothing had happened.
void handler_that_frees_memory_is_enough() {
    constexpr std::size_t reserved = 8 * MIB;
    reserve.reserve(4096);
    std::vector<void *> kept;
    kept.reserve(4096);
    limit_address_space(proc_kb_line("/proc/self/status", "\nVmSize:") + 256 * MIB);
    for (int i = 0; i < 8; i++) {
        reserve.push_back(std::malloc(reserved));
        require(reserve.back() != nullptr);
    }
    handler_calls = 0;
    std::set_new_handler(give_back_one);
    while (reserve.size() > 2) {
        kept.push_back(kept.size() % 2 == 0 ? ::operator new(6 * MIB)
                                            : ::operator new[](6 * MIB, std::nothrow));
        require(kept.back() != nullptr);
    }
    require(handler_calls >= 6);
    while (kept.size() < 4000) {
        void *block = ::operator new(6 * MIB, std::nothrow);
        if (block == nullptr) {
            break;
        }
        kept.push_back(block);
    }
    require(reserve.empty());
    require(outcome_of([&] { return ::operator new(64 * MIB); }) == Outcome::bad_alloc);
    require(outcome_of([&] { return ::operator new[](64 * MIB, wide); }) == Outcome::bad_alloc);
    std::set_new_handler(nullptr);
    require(outcome_of([&] { return ::operator new(64 * MIB); }) == Outcome::bad_alloc);
    for (void *block : kept) {
        ::operator delete(block);
    }
    // And then everything is as before.
    void *again = ::operator new(64 * MIB);
    ::operator delete(again);
    limit_address_space(0);
}

// ---- What the compiler makes of it

struct Thrower {
    char bytes[3000];
    explicit Thrower(int) {
        throw std::runtime_error("constructor");
    }
};

struct alignas(1024) WideThrower {
    char bytes[5000];
    WideThrower() {
        throw std::runtime_error("constructor");
    }
};

void throwing_constructor_gives_the_block_back() {
    std::size_t first = 0;
    for (int round = 0; round < 20000; round++) {
        require(outcome_of([] { return new Thrower(1); }) == Outcome::other);
        require(outcome_of([] { return new (std::nothrow) Thrower(1); }) == Outcome::other);
        require(outcome_of([] { return new WideThrower; }) == Outcome::other);
        require(outcome_of([] { return new WideThrower[3]; }) == Outcome::other);
        if (round == 1000) {
            first = rss_bytes();
        }
    }
    require(rss_bytes() < first + 16 * MIB);
}

void array_lengths_that_overflow() {
    volatile std::size_t count = SIZE_MAX / 8 + 2;
    require(outcome_of([&] { return new double[count]; }) == Outcome::bad_alloc);
    require(outcome_of([&] { return new (std::nothrow) std::string[count]; }) != Outcome::block);
    volatile int negative = -1;
    require(outcome_of([&] { return new char[static_cast<std::size_t>(negative)]; }) ==
            Outcome::bad_alloc);
}

void other_threads_may_delete() {
    for (int round = 0; round < 20; round++) {
        std::vector<std::string *> made;
        for (int i = 0; i < 2000; i++) {
            made.push_back(new std::string(static_cast<std::size_t>(i), 'z'));
        }
        std::thread other([&made] {
            for (std::string *text : made) {
                delete text;
            }
        });
        other.join();
    }
}

// Uses the heap before main and after it.
struct Early {
    std::vector<std::string> lines;
    Early() {
        for (int i = 0; i < 1000; i++) {
            lines.emplace_back(static_cast<std::size_t>(i), 'e');
        }
    }
    ~Early() {
        require(lines.size() == 1000 && lines[999].size() == 999);
        lines.push_back("late");
        auto *late = new std::string(3000, 'l');
        delete late;
    }
};
Early early;

}  // namespace

int main() {
    behaviour_require_allocator();
    require(early.lines.size() == 1000);
    alignment_that_is_no_power_of_two();
    alignment_to_1_gib();
    every_form_of_zero_bytes_is_a_block_of_its_own();
    blocks_cross_between_the_languages();
    delete_keeps_errno();
    handler_that_throws_something_else();
    throwing_constructor_gives_the_block_back();
    array_lengths_that_overflow();
    other_threads_may_delete();
    handler_that_frees_memory_is_enough();
    behaviour_require_sound_heap();
    return 0;
}
