// Sized delete of a large object with a small size.
#include "misuse.h"

#include <new>

extern "C" void mistake() {
    void *block = ::operator new(200 * KIB);
    require(block != nullptr);
    about_block(block, block);
    ::operator delete(block, std::size_t(208));
}
