// C++ operator new: malloc, and on failure the new_handler, then std::bad_alloc (or NULL).
// operator delete is in delete.c, which says what becomes of forms that the program replaced. The shared library has the
// plain form, which others are defined by, in new_hit.c.
//
// In the shared library every reference to the C++ runtime is weak (HAKMEM_SHARED), so that a C
// program does not load it. A C++ program has it loaded, and then they are bound.
#include <cstddef>
#include <cstdlib>
#include <new>

#ifdef HAKMEM_SHARED
__asm__(".weak __cxa_allocate_exception\n"
        ".weak __cxa_throw\n"
        ".weak __cxa_begin_catch\n"
        ".weak __cxa_end_catch\n"
        ".weak __gxx_personality_v0\n"
        ".weak _Unwind_Resume\n"
        ".weak _ZSt15get_new_handlerv\n"
        ".weak _ZSt9terminatev\n"
        ".weak _ZTISt9bad_alloc\n"
        ".weak _ZTVSt9bad_alloc\n"
        ".weak _ZTVSt9exception\n"
        ".weak _ZNSt9bad_allocD1Ev\n");
extern "C" void __cxa_throw(void *, void *, void (*)(void *));
extern "C" const char bad_alloc_type[] __asm__("_ZTISt9bad_alloc");

// The compiler takes what is declared for there.
template <typename Reference> static inline bool is_there(Reference *reference) {
    __asm__("" : "+r"(reference));
    return reference != nullptr;
}

// A program that has the runtime from an archive has what it refers to itself: weak references bring nothing along.
static bool runtime_is_present() {
    return is_there(__cxa_throw) && is_there(bad_alloc_type);
}

// What sets a handler lies in one object with what tells of it: without the one there is none to tell of.
static std::new_handler handler_in_force() {
    return is_there(std::get_new_handler) ? std::get_new_handler() : nullptr;
}
#else
static bool runtime_is_present() {
    return true;
}

static std::new_handler handler_in_force() {
    return std::get_new_handler();
}
#endif

// Aliases carry no promises to the optimiser, unlike the declarations of their targets.
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmissing-attributes"
#endif

// Weak: a program that is linked with the archive may replace any form by its own.
#define EXPORTED __attribute__((weak, visibility("default")))
#define SLOW_PATH __attribute__((noinline, cold))

// Weak before they are used.
// NOLINTBEGIN(readability-redundant-declaration)
EXPORTED void *operator new(std::size_t bytes);
EXPORTED void *operator new[](std::size_t bytes);
EXPORTED void *operator new(std::size_t bytes, std::align_val_t alignment);
EXPORTED void *operator new[](std::size_t bytes, std::align_val_t alignment);
// NOLINTEND(readability-redundant-declaration)

using plain_form = void *(*)(std::size_t);
using aligned_form = void *(*)(std::size_t, std::align_val_t);

// The library's own, whatever is in force.
#define OWN(name) __attribute__((alias(name), visibility("hidden")))
extern "C" {
#ifdef HAKMEM_SHARED
__attribute__((visibility("hidden"))) void *hakmem_own_new(std::size_t);
#else
void *hakmem_own_new(std::size_t) OWN("_Znwm");
#endif
void *hakmem_own_new_array(std::size_t) OWN("_Znam");
void *hakmem_own_new_aligned(std::size_t, std::align_val_t) OWN("_ZnwmSt11align_val_t");
void *hakmem_own_new_array_aligned(std::size_t, std::align_val_t) OWN("_ZnamSt11align_val_t");
}

// The compiler must not conclude that an alias has its target's address.
template <typename Form> static inline bool differ(Form in_force, Form own) {
    __asm__("" : "+r"(in_force));
    return __builtin_expect(in_force != own, 0);
}

static inline bool new_is_replaced() {
    return differ<plain_form>(&::operator new, hakmem_own_new);
}

static inline bool new_array_is_replaced() {
    return differ<plain_form>(&::operator new[], hakmem_own_new_array) || new_is_replaced();
}

static inline bool new_aligned_is_replaced() {
    return differ<aligned_form>(&::operator new, hakmem_own_new_aligned);
}

static inline bool new_array_aligned_is_replaced() {
    return differ<aligned_form>(&::operator new[], hakmem_own_new_array_aligned) ||
           new_aligned_is_replaced();
}

// Alignment NATURAL: malloc's own.
static constexpr std::size_t NATURAL = 1;

// As libstdc++: an alignment that is no power of two is refused, and no handler can help.
static inline bool is_refused(std::size_t alignment) {
    return __builtin_expect(alignment == 0 || (alignment & (alignment - 1)) != 0, 0);
}

static inline void *allocate(std::size_t bytes, std::size_t alignment) {
    if (alignment == NATURAL) {
        return std::malloc(bytes);
    }
    return is_refused(alignment) ? nullptr : std::aligned_alloc(alignment, bytes);
}

SLOW_PATH static void *retry(std::size_t bytes, std::size_t alignment) {
    if (!runtime_is_present()) {
        std::abort();  // nobody to throw with: a C++ plugin in a program without the C++ runtime
    }
    for (;;) {
        const std::new_handler handler = handler_in_force();
        if (handler == nullptr || is_refused(alignment)) {
            throw std::bad_alloc();
        }
        handler();
        void *block = allocate(bytes, alignment);
        if (block != nullptr) {
            return block;
        }
    }
}

SLOW_PATH static void *retry_nothrow(std::size_t bytes, std::size_t alignment) noexcept {
    if (!runtime_is_present()) {
        return nullptr;
    }
    try {
        return retry(bytes, alignment);
    } catch (...) {
        return nullptr;
    }
}

static inline void *new_or_throw(std::size_t bytes, std::size_t alignment) {
    void *block = allocate(bytes, alignment);
    return __builtin_expect(block != nullptr, 1) ? block : retry(bytes, alignment);
}

static inline void *new_or_null(std::size_t bytes, std::size_t alignment) noexcept {
    void *block = allocate(bytes, alignment);
    return __builtin_expect(block != nullptr, 1) ? block : retry_nothrow(bytes, alignment);
}

// What a replaced form throws becomes NULL.
template <typename Call> SLOW_PATH static void *null_for_exceptions(Call call) noexcept {
    try {
        return call();
    } catch (...) {
        return nullptr;
    }
}

#ifdef HAKMEM_SHARED
// Of new_hit.c, when malloc has failed.
extern "C" SLOW_PATH void *hakmem_new_retry(std::size_t bytes);
void *hakmem_new_retry(std::size_t bytes) {
    return retry(bytes, NATURAL);
}
#else
EXPORTED void *operator new(std::size_t bytes) {
    return new_or_throw(bytes, NATURAL);
}
#endif
EXPORTED void *operator new[](std::size_t bytes) {
    return ::operator new(bytes);
}
EXPORTED void *operator new(std::size_t bytes, const std::nothrow_t &) noexcept {
    if (new_is_replaced()) {
        return null_for_exceptions([=] { return ::operator new(bytes); });
    }
    return new_or_null(bytes, NATURAL);
}
EXPORTED void *operator new[](std::size_t bytes, const std::nothrow_t &) noexcept {
    if (new_array_is_replaced()) {
        return null_for_exceptions([=] { return ::operator new[](bytes); });
    }
    return new_or_null(bytes, NATURAL);
}
EXPORTED void *operator new(std::size_t bytes, std::align_val_t alignment) {
    return new_or_throw(bytes, static_cast<std::size_t>(alignment));
}
EXPORTED void *operator new[](std::size_t bytes, std::align_val_t alignment) {
    return ::operator new(bytes, alignment);
}
EXPORTED void *operator new(std::size_t bytes, std::align_val_t alignment,
                            const std::nothrow_t &) noexcept {
    if (new_aligned_is_replaced()) {
        return null_for_exceptions([=] { return ::operator new(bytes, alignment); });
    }
    return new_or_null(bytes, static_cast<std::size_t>(alignment));
}
EXPORTED void *operator new[](std::size_t bytes, std::align_val_t alignment,
                              const std::nothrow_t &) noexcept {
    if (new_array_aligned_is_replaced()) {
        return null_for_exceptions([=] { return ::operator new[](bytes, alignment); });
    }
    return new_or_null(bytes, static_cast<std::size_t>(alignment));
}
