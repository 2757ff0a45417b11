// Replaces operator new and delete by its own.
#include <cstdlib>
#include <new>
#include <string>

void *operator new(std::size_t bytes) {
    return std::malloc(bytes);
}

void operator delete(void *block) noexcept {
    std::free(block);
}

void operator delete(void *block, std::size_t) noexcept {
    std::free(block);
}

int main(int argc, char **argv) {
    std::string text(1000, argv[argc - 1][0]);
    return text.size() == 1000 ? 0 : 1;
}
