// An aligned object of new freed by the delete without alignment.
#include "misuse.h"

#include <new>

extern "C" void mistake() {
    void *block = ::operator new(1024, std::align_val_t(256));
    require(block != nullptr);
    about_block(block, block);
    ::operator delete(block);
}
