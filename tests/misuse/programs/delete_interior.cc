// delete of a pointer 8 bytes into an array, where a count would lie before it.
#include "misuse.h"

#include <new>

extern "C" void mistake() {
    char *block = static_cast<char *>(::operator new[](208));
    about_block(block + 8, block);
    ::operator delete(opaque_pointer(block + 8));
}
