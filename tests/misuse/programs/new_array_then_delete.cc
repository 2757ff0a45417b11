// An array of new[] freed by delete.
#include "misuse.h"

#include <new>

extern "C" void mistake() {
    void *block = ::operator new[](208);
    require(block != nullptr);
    about_block(block, block);
    ::operator delete(block);
}
