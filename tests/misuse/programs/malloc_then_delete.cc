// A block of malloc freed by delete.
#include "misuse.h"

#include <new>

extern "C" void mistake() {
    void *block = std::malloc(208);
    require(block != nullptr);
    about_block(block, block);
    ::operator delete(block);
}
