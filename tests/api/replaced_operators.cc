// A program that replaces operators by its own: each form that the standard defines by a replaced
// one must call it, or a block meets the wrong delete. The replacements put a header in front of the
// block, so that none of their blocks is one of malloc's.
//
// REPLACED_ALIGNED: the aligned forms. REPLACED_ARRAYS: those of arrays. Otherwise the plain ones.
#include "behaviour.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t header_bytes = 64;
constexpr std::uint64_t mark = 0x6f776e20626c6f63;
std::atomic<long> news;
std::atomic<long> deletes;

void *take(std::size_t bytes) {
    news++;
    auto *start = static_cast<unsigned char *>(aligned_alloc(64, bytes + header_bytes));
    if (start == nullptr) {
        throw std::bad_alloc();
    }
    std::memcpy(start + header_bytes - sizeof mark, &mark, sizeof mark);
    return start + header_bytes;
}

void give(void *block) {
    deletes++;
    if (block == nullptr) {
        return;
    }
    auto *bytes = static_cast<unsigned char *>(block);
    std::uint64_t found;
    std::memcpy(&found, bytes - sizeof found, sizeof found);
    require_that(found == mark, "a block that the program's own new never made");
    std::free(bytes - header_bytes);
}

}  // namespace

#if defined(REPLACED_ALIGNED)
void *operator new(std::size_t bytes, std::align_val_t) {
    return take(bytes);
}
void operator delete(void *block, std::align_val_t) noexcept {
    give(block);
}
constexpr bool plain = false, arrays = false, aligned = true;
#elif defined(REPLACED_ARRAYS)
void *operator new[](std::size_t bytes) {
    return take(bytes);
}
void operator delete[](void *block) noexcept {
    give(block);
}
constexpr bool plain = false, arrays = true, aligned = false;
#else
void *operator new(std::size_t bytes) {
    return take(bytes);
}
void operator delete(void *block) noexcept {
    give(block);
}
constexpr bool plain = true, arrays = true, aligned = false;
#endif

namespace {

template <typename New, typename Delete>
void check(const char *form, bool replaced, New make, Delete drop) {
    for (std::size_t bytes : {1, 100, 5000, 100000, 5000000}) {
        news = 0;
        deletes = 0;
        void *block = opaque_pointer(make(bytes));
        require(block != nullptr);
        std::memset(block, 1, bytes);
        require_that(news == (replaced ? 1 : 0), "new of %s: %ld calls of the program's", form,
                     news.load());
        drop(block, bytes);
        require_that(deletes == (replaced ? 1 : 0), "delete of %s: %ld calls of the program's",
                     form, deletes.load());
    }
}

using Size = std::size_t;
const auto wide = std::align_val_t{64};

void every_form_calls_what_is_in_force() {
    const std::nothrow_t &quiet = std::nothrow;
    check(
        "plain", plain, [](Size n) { return ::operator new(n); },
        [](void *p, Size) { ::operator delete(p); });
    check(
        "sized", plain, [](Size n) { return ::operator new(n); },
        [](void *p, Size n) { ::operator delete(p, n); });
    check(
        "nothrow", plain, [&](Size n) { return ::operator new(n, quiet); },
        [&](void *p, Size) { ::operator delete(p, quiet); });
    check(
        "array", arrays, [](Size n) { return ::operator new[](n); },
        [](void *p, Size) { ::operator delete[](p); });
    check(
        "sized array", arrays, [](Size n) { return ::operator new[](n); },
        [](void *p, Size n) { ::operator delete[](p, n); });
    check(
        "nothrow array", arrays, [&](Size n) { return ::operator new[](n, quiet); },
        [&](void *p, Size) { ::operator delete[](p, quiet); });
    check(
        "aligned", aligned, [](Size n) { return ::operator new(n, wide); },
        [](void *p, Size) { ::operator delete(p, wide); });
    check(
        "sized aligned", aligned, [](Size n) { return ::operator new(n, wide); },
        [](void *p, Size n) { ::operator delete(p, n, wide); });
    check(
        "nothrow aligned", aligned, [&](Size n) { return ::operator new(n, wide, quiet); },
        [&](void *p, Size) { ::operator delete(p, wide, quiet); });
    check(
        "aligned array", aligned, [](Size n) { return ::operator new[](n, wide); },
        [](void *p, Size) { ::operator delete[](p, wide); });
    check(
        "sized aligned array", aligned, [](Size n) { return ::operator new[](n, wide); },
        [](void *p, Size n) { ::operator delete[](p, n, wide); });
    check(
        "nothrow aligned array", aligned, [&](Size n) { return ::operator new[](n, wide, quiet); },
        [&](void *p, Size) { ::operator delete[](p, wide, quiet); });
}

struct alignas(64) Wide {
    char bytes[200];
};

// What the C++ library allocates with one form and the program deletes with another.
void the_language_mixes_forms() {
    for (int round = 0; round < 200; round++) {
        std::vector<std::string> strings;
        for (int i = 0; i < 100; i++) {
            strings.emplace_back(static_cast<Size>(i * 7), 's');
        }
        // Takes its buffer with the nothrow form and gives it back with the sized one.
        std::stable_sort(strings.begin(), strings.end());
        auto *quiet = new (std::nothrow) std::string(300, 'q');
        require(quiet != nullptr);
        delete quiet;
        auto array = std::make_unique<std::string[]>(20);
        array[19] = strings.back();
        auto one = std::make_unique<Wide>();
        auto many = std::make_unique<Wide[]>(3);
        std::thread other([&strings] { strings.clear(); });
        other.join();
    }
}

}  // namespace

int main() {
    behaviour_require_allocator();
    every_form_calls_what_is_in_force();
    the_language_mixes_forms();
    std::thread other(every_form_calls_what_is_in_force);
    other.join();
    behaviour_require_sound_heap();
    return 0;
}
