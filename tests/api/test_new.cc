// The C++ operators: all forms of new and delete, bad_alloc, nothrow, the new_handler.
#include "api.h"

#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t too_large = PTRDIFF_MAX;
const std::size_t sizes[] = {0, 1, 16, 24, 100, 1000, 5000, 65536, 70000, 300000, 5000000};

template <typename Call> bool throws_bad_alloc(Call call) {
    try {
        call();
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

void require_block(void *block, std::size_t bytes, std::size_t alignment) {
    assert_non_null(block);
    assert_true(aligned_to(block, alignment));
    assert_true(malloc_usable_size(block) >= bytes);
    std::memset(block, 0x11, malloc_usable_size(block));
}

void plain_forms(void **) {
    const std::size_t live_before = live_bytes();
    for (std::size_t bytes : sizes) {
        void *one = ::operator new(bytes);
        void *two = ::operator new[](bytes);
        require_block(one, bytes, 16);
        require_block(two, bytes, 16);
        assert_ptr_not_equal(one, two);
        ::operator delete(one);
        ::operator delete[](two);
        one = ::operator new(bytes);
        two = ::operator new[](bytes);
        ::operator delete(one, bytes);
        ::operator delete[](two, bytes);
        one = ::operator new(bytes, std::nothrow);
        two = ::operator new[](bytes, std::nothrow);
        require_block(one, bytes, 16);
        require_block(two, bytes, 16);
        ::operator delete(one, std::nothrow);
        ::operator delete[](two, std::nothrow);
    }
    ::operator delete(nullptr);
    ::operator delete[](nullptr);
    ::operator delete (nullptr, std::size_t{10});
    ::operator delete[](nullptr, std::size_t{10});
    ::operator delete(nullptr, std::nothrow);
    ::operator delete[](nullptr, std::nothrow);
    assert_int_equal(live_bytes(), live_before);
}

void aligned_forms(void **) {
    const std::size_t live_before = live_bytes();
    for (std::size_t alignment = 1; alignment <= 1 << 22; alignment *= 2) {
        const auto align = static_cast<std::align_val_t>(alignment);
        for (std::size_t bytes : sizes) {
            void *one = ::operator new(bytes, align);
            void *two = ::operator new[](bytes, align);
            require_block(one, bytes, alignment);
            require_block(two, bytes, alignment);
            ::operator delete(one, align);
            ::operator delete[](two, align);
            one = ::operator new(bytes, align);
            two = ::operator new[](bytes, align);
            ::operator delete(one, bytes, align);
            ::operator delete[](two, bytes, align);
            one = ::operator new(bytes, align, std::nothrow);
            two = ::operator new[](bytes, align, std::nothrow);
            require_block(one, bytes, alignment);
            require_block(two, bytes, alignment);
            ::operator delete(one, align, std::nothrow);
            ::operator delete[](two, align, std::nothrow);
        }
    }
    ::operator delete (nullptr, std::align_val_t{64});
    ::operator delete[](nullptr, std::align_val_t{64});
    ::operator delete (nullptr, std::size_t{1}, std::align_val_t{64});
    ::operator delete[](nullptr, std::size_t{1}, std::align_val_t{64});
    ::operator delete (nullptr, std::align_val_t{64}, std::nothrow);
    ::operator delete[](nullptr, std::align_val_t{64}, std::nothrow);
    assert_int_equal(live_bytes(), live_before);
}

void failure_throws(void **) {
    const auto align = std::align_val_t{64};
    for (std::size_t bytes : {too_large, SIZE_MAX - 4096, SIZE_MAX, std::size_t{1} << 48}) {
        bytes = opaque(bytes);
        assert_true(throws_bad_alloc([&] { opaque_pointer(::operator new(bytes)); }));
        assert_true(throws_bad_alloc([&] { opaque_pointer(::operator new[](bytes)); }));
        assert_null(::operator new(bytes, std::nothrow));
        assert_null(::operator new[](bytes, std::nothrow));
        if (!behaviour_on_hakmem() && bytes > SIZE_MAX - 64) {
            // libstdc++ 12 rounds the size up to the alignment, past SIZE_MAX to a small number.
            continue;
        }
        assert_true(throws_bad_alloc([&] { opaque_pointer(::operator new(bytes, align)); }));
        assert_true(throws_bad_alloc([&] { opaque_pointer(::operator new[](bytes, align)); }));
        assert_null(::operator new(bytes, align, std::nothrow));
        assert_null(::operator new[](bytes, align, std::nothrow));
    }
    // The exception of new T[n] whose product overflows comes from the compiler, through the same
    // path.
    volatile std::size_t count = SIZE_MAX / 4;
    assert_true(throws_bad_alloc([&] { opaque_pointer(new double[count]); }));
}

int handler_calls;

void handler_gives_up_after_three() {
    if (++handler_calls == 3) {
        std::set_new_handler(nullptr);
    }
}

void handler_is_called(void **) {
    const auto align = std::align_val_t{256};
    const std::size_t bytes = opaque(too_large);
    const std::function<void *()> forms[] = {
        [&] { return ::operator new(bytes); },
        [&] { return ::operator new[](bytes); },
        [&] { return ::operator new(bytes, align); },
        [&] { return ::operator new[](bytes, align); },
    };
    for (const auto &form : forms) {
        handler_calls = 0;
        std::set_new_handler(handler_gives_up_after_three);
        assert_true(throws_bad_alloc([&] { opaque_pointer(form()); }));
        assert_int_equal(handler_calls, 3);
        assert_true(std::get_new_handler() == nullptr);
    }
    const std::function<void *()> quiet_forms[] = {
        [&] { return ::operator new(bytes, std::nothrow); },
        [&] { return ::operator new[](bytes, std::nothrow); },
        [&] { return ::operator new(bytes, align, std::nothrow); },
        [&] { return ::operator new[](bytes, align, std::nothrow); },
    };
    for (const auto &form : quiet_forms) {
        handler_calls = 0;
        std::set_new_handler(handler_gives_up_after_three);
        assert_null(form());
        assert_int_equal(handler_calls, 3);
    }
    std::set_new_handler(nullptr);
}

// What a handler throws passes through new, and becomes NULL in the nothrow forms.
void handler_may_throw(void **) {
    const std::size_t bytes = opaque(too_large);
    std::set_new_handler([] { throw std::bad_alloc(); });
    assert_true(throws_bad_alloc([&] { opaque_pointer(::operator new(bytes)); }));
    assert_true(
        throws_bad_alloc([&] { opaque_pointer(::operator new[](bytes, std::align_val_t{64})); }));
    assert_null(::operator new(bytes, std::nothrow));
    assert_null(::operator new[](bytes, std::nothrow));
    assert_null(::operator new (bytes, std::align_val_t{64}, std::nothrow));
    assert_null(::operator new[](bytes, std::align_val_t{64}, std::nothrow));
    std::set_new_handler(nullptr);
}

struct alignas(512) Wide {
    char bytes[512];
};

void the_language_uses_them(void **) {
    for (int round = 0; round < 100; round++) {
        auto wide = std::make_unique<Wide>();
        assert_true(aligned_to(wide.get(), 512));
        auto many = std::unique_ptr<Wide[]>(new Wide[5]);
        assert_true(aligned_to(many.get(), 512));
        std::vector<std::string> strings;
        for (int i = 0; i < 500; i++) {
            strings.emplace_back(static_cast<std::size_t>(i), 'x');
        }
        std::thread other([moved = std::move(strings)]() mutable { moved.clear(); });
        other.join();
        auto *text = new std::string(1000, 'y');
        delete text;
    }
}

// A thrown exception is allocated too, also when memory is refused while it is in flight.
void exceptions_under_refusal(void **) {
    for (int i = 0; i < 200; i++) {
        try {
            try {
                opaque_pointer(::operator new(opaque(too_large)));
            } catch (const std::bad_alloc &) {
                throw std::string(500, 'e');
            }
        } catch (const std::string &text) {
            assert_int_equal(text.size(), 500);
        }
    }
}

}  // namespace

int main() {
    behaviour_require_allocator();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_forms),
        cmocka_unit_test(aligned_forms),
        cmocka_unit_test(failure_throws),
        cmocka_unit_test(handler_is_called),
        cmocka_unit_test(handler_may_throw),
        cmocka_unit_test(the_language_uses_them),
        cmocka_unit_test(exceptions_under_refusal),
    };
    int failed = cmocka_run_group_tests_name("new", tests, nullptr, nullptr);
    behaviour_require_sound_heap();
    return failed;
}
