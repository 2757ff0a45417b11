// The new_handler is called until it gives up, by the throwing and the nothrow form.
#include "misuse.h"

#include <new>

static int calls;

static void handler() {
    if (++calls == 3) {
        std::set_new_handler(nullptr);
    }
}

extern "C" void mistake() {
    std::set_new_handler(handler);
    bool thrown = false;
    try {
        ::operator delete(::operator new(opaque(PTRDIFF_MAX)));
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    contract(thrown && calls == 3);
    calls = 0;
    std::set_new_handler(handler);
    contract(::operator new(opaque(PTRDIFF_MAX), std::nothrow) == nullptr &&calls == 3);
}
