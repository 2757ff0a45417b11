// C++ operator new: malloc, and on failure the new_handler, then std::bad_alloc (or NULL).
// operator delete is in delete.c, which says what becomes of forms that the program replaced. The shared library has the
// plain form, which others are defined by, in new_hit.c.
//
// In the shared library every reference to the C++ runtime is weak (HAKMEM_SHARED), so that a C
// program does not load it. A C++ program has it loaded, and then they are bound. In a C program they stay unbound: what a
// plug-in in C++ brings later is looked up when its new fails.
#include <cstddef>
#include <cstdlib>
#include <new>

#ifdef HAKMEM_SHARED
#include <dlfcn.h>
#endif

#define SLOW_PATH __attribute__((noinline, cold))

// Alignment NATURAL: malloc's own.
static constexpr std::size_t NATURAL = 1;

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
// Of os/os.h, which is C.
extern "C" void os_write(int descriptor, const char *text, std::size_t length);

// The compiler takes what is declared for there.
template <typename Reference> static inline bool is_there(Reference *reference) {
    __asm__("" : "+r"(reference));
    return reference != nullptr;
}

// A program that has the runtime from an archive has what it refers to itself: weak references bring nothing along.
static bool runtime_is_present() {
    return is_there(__cxa_throw) && is_there(bad_alloc_type);
}

// A name of the runtime that a plug-in of a C program brought along. Only that plug-in may see it (RTLD_LOCAL), so the loader
// is asked for its library; of two, libstdc++ is taken. No lock is held here: the loader may allocate.
SLOW_PATH static void *runtime_of_plugin(const char *name) {
    static const char libraries[][16] = {"libstdc++.so.6", "libc++.so.1"};
    // Never closed: what comes from there may be in use when another thread unloads the plug-in.
    static void *kept[2];
    for (std::size_t i = 0; i < 2; i++) {
        // Acquire: pairs with the store below.
        void *library = __atomic_load_n(&kept[i], __ATOMIC_ACQUIRE);
        if (library == nullptr) {
            library = dlopen(libraries[i], RTLD_LAZY | RTLD_NOLOAD);
            if (library == nullptr) {
                continue;
            }
            // Release: pairs with the load above. Another thread stores the same.
            __atomic_store_n(&kept[i], library, __ATOMIC_RELEASE);
        }
        void *found = dlsym(library, name);
        if (found != nullptr) {
            return found;
        }
    }
    return nullptr;
}

// What sets a handler lies in one object with what tells of it: without the one there is none to tell of.
SLOW_PATH static std::new_handler handler_in_force() {
    if (runtime_is_present()) {
        return is_there(std::get_new_handler) ? std::get_new_handler() : nullptr;
    }
    using getter = std::new_handler (*)();
    const auto get = reinterpret_cast<getter>(runtime_of_plugin("_ZSt15get_new_handlerv"));
    return get == nullptr ? nullptr : get();
}

[[noreturn]] SLOW_PATH static void throw_bad_alloc() {
    if (runtime_is_present()) {
        throw std::bad_alloc();
    }
    using thrower = void (*)();
    const auto thrown = reinterpret_cast<thrower>(runtime_of_plugin("_ZSt17__throw_bad_allocv"));
    if (thrown != nullptr) {
        thrown();
    }
    static const char line[] =
        "hakmem: operator new failed, and no C++ runtime was found to throw std::bad_alloc with\n";
    os_write(2, line, sizeof line - 1);
    std::abort();
}

// Where the references are unbound, no frame of this file can catch: its personality is one of them, and what is thrown
// passes it by. The runtime's own form calls new as the process has it, ours, and catches.
SLOW_PATH static void *nothrow_of_plugin(std::size_t bytes, std::size_t alignment) noexcept {
    static const std::nothrow_t nothrow{};
    if (alignment == NATURAL) {
        using form = void *(*)(std::size_t, const std::nothrow_t &);
        const auto theirs = reinterpret_cast<form>(runtime_of_plugin("_ZnwmRKSt9nothrow_t"));
        return theirs == nullptr ? nullptr : theirs(bytes, nothrow);
    }
    using form = void *(*)(std::size_t, std::align_val_t, const std::nothrow_t &);
    const auto theirs =
        reinterpret_cast<form>(runtime_of_plugin("_ZnwmSt11align_val_tRKSt9nothrow_t"));
    return theirs == nullptr ? nullptr : theirs(bytes, std::align_val_t{alignment}, nothrow);
}
#else
static bool runtime_is_present() {
    return true;
}

static std::new_handler handler_in_force() {
    return std::get_new_handler();
}

[[noreturn]] static void throw_bad_alloc() {
    throw std::bad_alloc();
}

static void *nothrow_of_plugin(std::size_t, std::size_t) noexcept {
    return nullptr;
}
#endif

// Aliases carry no promises to the optimiser, unlike the declarations of their targets.
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmissing-attributes"
#endif

// Weak: a program that is linked with the archive may replace any form by its own.
#define EXPORTED __attribute__((weak, visibility("default")))

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
    for (;;) {
        const std::new_handler handler = handler_in_force();
        if (handler == nullptr || is_refused(alignment)) {
            throw_bad_alloc();
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
        return nothrow_of_plugin(bytes, alignment);
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
