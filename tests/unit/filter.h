// Filters of system calls, for tests. linux/filter.h and linux/seccomp.h: musl-gcc does not find them.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>

struct filter_instruction {
    uint16_t code;
    uint8_t if_true, if_false;
    uint32_t k;
};
struct filter_program {
    uint16_t count;
    const struct filter_instruction *code;
};
#define LOAD_WORD 0x20
#define JUMP_IF_EQUAL 0x15
#define JUMP_IF_GREATER 0x25
#define RETURN 0x06
#define KILL_PROCESS 0x80000000u
#define FAIL_WITH_ENOMEM (0x00050000u | 12)
#define FAIL_WITH_EINVAL (0x00050000u | 22)
#define RAISE_SIGSYS 0x00030000u
#define ALLOW 0x7fff0000u
#define MODE_FILTER 2
#define NUMBER_AT 0
#define THIRD_ARGUMENT_AT 32
#define FOURTH_ARGUMENT_AT 40

static inline bool filter_install(const struct filter_instruction *code, size_t count) {
    const struct filter_program program = {(uint16_t)count, code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, MODE_FILTER, &program) == 0;
}
