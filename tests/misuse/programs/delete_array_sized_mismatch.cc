// Sized delete[] with a size that is not the array's.
#include "misuse.h"

#include <new>

extern "C" void mistake() {
    void *block = ::operator new[](208);
    require(block != nullptr);
    about_block(block, block);
    ::operator delete[](block, std::size_t(32));
}
