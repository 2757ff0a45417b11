// A program that registers unwind tables, as JIT compilers do: libgcc then keeps a lock while it calls malloc, and malloc walks stacks.
#include <cstdint>
#include <stdexcept>
#include <unistd.h>

extern "C" void __register_frame(void *tables);

namespace {

unsigned char code[64];

// A common entry, one of a function, the end. Packed: as tables are.
struct [[gnu::packed]] Tables {
    uint32_t common_bytes = 16;
    uint32_t is_common = 0;
    uint8_t version = 1;
    char augmentation = 0;
    uint8_t code_factor = 1, data_factor = 0x78, return_register = 16;
    uint8_t instructions[7] = {0x0c, 7, 8, 0x90, 1, 0, 0};
    uint32_t function_bytes = 20;
    uint32_t back = 24;
    const void *begin = code;
    uint64_t length = sizeof code;
    uint32_t end = 0;
};

}  // namespace

int main() {
    alarm(300);
    for (unsigned i = 0; i < 5000; i++) {
        __register_frame(new Tables);
        try {
            throw std::runtime_error("walked");
        } catch (const std::exception &) {
        }
    }
    return 0;
}
