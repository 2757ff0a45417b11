// Aligned sized delete with a size that is not the object's.
#include "misuse.h"

#include <new>

extern "C" void mistake() {
    void *block = ::operator new(1024, std::align_val_t(256));
    require(block != nullptr);
    about_block(block, block);
    ::operator delete(block, std::size_t(64), std::align_val_t(256));
}
