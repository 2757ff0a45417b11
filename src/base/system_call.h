// System calls without the C library, whose wrappers, syscall() among them, other preloaded libraries may hook: what a hook does may
// allocate, or wait for a lock that this thread has.
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <sys/syscall.h>

// What the kernel returns: see system_call_failed().
#if defined(__x86_64__)
static inline long system_call(long number, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
#elif defined(__aarch64__)
static inline long system_call(long number, long a, long b, long c, long d, long e, long f) {
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    return x0;
}
#endif

// The kernel returns -4095..-1 for an error.
static inline bool system_call_failed(long result) {
    return (unsigned long)result > (unsigned long)-4096;
}

static inline long system_call_with_errno(long result) {
    if (system_call_failed(result)) {
        errno = (int)-result;
        return -1;
    }
    return result;
}

// As the C library's syscall(): SYSTEM_CALL(SYS_name, arguments...), -1 with errno for an error.
#define SYSTEM_CALL(...) SYSTEM_CALL_OF_SIX(__VA_ARGS__, 0, 0, 0, 0, 0, 0)
#define SYSTEM_CALL_OF_SIX(number, a, b, c, d, e, f, ...) \
    system_call_with_errno(                               \
        system_call((number), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f)))
