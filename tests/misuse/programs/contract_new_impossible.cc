// new of impossible sizes: bad_alloc, or NULL from the nothrow forms.
#include "misuse.h"

#include <new>

#include "impossible.h"

template <typename Call> static bool throws(Call call) {
    try {
        call();
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

extern "C" void mistake() {
    for (std::size_t i = 0; i < IMPOSSIBLE_COUNT; i++) {
        const std::size_t bytes = opaque(impossible[i]);
        const std::align_val_t alignment{64};
        contract(throws([=] { return ::operator new(bytes); }));
        contract(throws([=] { return ::operator new[](bytes); }));
        contract(throws([=] { return ::operator new(bytes, alignment); }));
        contract(throws([=] { return ::operator new[](bytes, alignment); }));
        contract(::operator new(bytes, std::nothrow) == nullptr);
        contract(::operator new[](bytes, std::nothrow) == nullptr);
        contract(::operator new(bytes, alignment, std::nothrow) == nullptr);
        contract(::operator new[](bytes, alignment, std::nothrow) == nullptr);
    }
}
