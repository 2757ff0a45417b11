// Faults and what follows them: the library's handler, the one before it, the default. Stacks, and the
// modules their addresses lie in. On the real system.
#include "isolate.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__GLIBC__)
#include <ucontext.h>
#include <unwind.h>
#endif

#include "os/fault.h"
#include "os/os.h"
#include "os/stack.h"

#define MINE 41     // exit status of the library's handler
#define EARLIER 42  // of the one before it

// Elsewhere stacks are walked along frame pointers, which optimised code has not.
#if defined(__GLIBC__)
#define WALKS_ALL_CODE true
#else
#define WALKS_ALL_CODE false
#endif

static char *page;
static struct os_fault seen;
static unsigned seen_count;
static int earlier_signal;
static volatile sig_atomic_t earlier_count;

static char *map_page(int protection) {
    char *start = mmap(NULL, 65536, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(start != MAP_FAILED);
    return start;
}

static void install(int signal_number, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigemptyset(&action.sa_mask);
    require(sigaction(signal_number, &action, NULL) == 0);
}

static void end_mine(int signal_number) {
    (void)signal_number;
    _exit(MINE);
}

static void earlier_plain(int signal_number) {
    earlier_signal = signal_number;
    earlier_count++;
    _exit(EARLIER);
}

static void earlier_info(int signal_number, siginfo_t *info, void *context) {
    require(signal_number == SIGSEGV && context != NULL);
    require(info->si_addr == page);
    _exit(EARLIER);
}

static void earlier_returns(int signal_number) {
    (void)signal_number;
    earlier_count++;
    if (earlier_count == 3) {
        require(mprotect(page, 65536, PROT_READ | PROT_WRITE) == 0);
    }
}

static bool not_mine(const struct os_fault *fault) {
    seen = *fault;
    seen_count++;
    return false;
}

static bool mend(const struct os_fault *fault) {
    seen = *fault;
    seen_count++;
    return mprotect(page, 65536, PROT_READ | PROT_WRITE) == 0;
}

__attribute__((noinline)) static void touch(volatile char *at) {
    *at = 1;
}

static int default_follows(const void *context) {
    (void)context;
    install(SIGSEGV, SIG_DFL, 0);
    require(os_fault_catch(not_mine));
    page = map_page(PROT_NONE);
    touch(page);
    return 0;
}

static int sent_signals_have_their_default(const void *context) {
    install(*(const int *)context, SIG_DFL, 0);
    require(os_fault_catch(not_mine));
    kill(getpid(), *(const int *)context);
    for (;;) {
        pause();
    }
    return 0;
}

static int ignored_when_sent(const void *context) {
    (void)context;
    install(SIGSEGV, SIG_IGN, 0);
    require(os_fault_catch(not_mine));
    kill(getpid(), SIGSEGV);
    kill(getpid(), SIGSEGV);
    require(seen_count == 0);
    return 5;
}

static int not_ignored_when_it_is_a_fault(const void *context) {
    (void)context;
    install(SIGSEGV, SIG_IGN, 0);
    require(os_fault_catch(not_mine));
    page = map_page(PROT_NONE);
    touch(page);
    return 0;
}

static int earlier_handler_follows(const void *context) {
    (void)context;
    install(SIGSEGV, earlier_plain, 0);
    require(os_fault_catch(not_mine));
    page = map_page(PROT_NONE);
    touch(page);
    return 0;
}

static int earlier_handler_with_information(const void *context) {
    (void)context;
    struct sigaction action = {.sa_sigaction = earlier_info, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    require(sigaction(SIGSEGV, &action, NULL) == 0);
    require(os_fault_catch(not_mine));
    page = map_page(PROT_NONE);
    touch(page);
    return 0;
}

static int earlier_handler_may_return(const void *context) {
    (void)context;
    install(SIGSEGV, earlier_returns, 0);
    require(os_fault_catch(not_mine));
    page = map_page(PROT_NONE);
    touch(page);
    require(page[0] == 1);
    return (int)earlier_count;
}

static int earlier_handler_for_once(const void *context) {
    (void)context;
    install(SIGSEGV, earlier_returns, (int)SA_RESETHAND);
    require(os_fault_catch(not_mine));
    page = map_page(PROT_NONE);
    touch(page);
    return 0;
}

static int mended_faults_go_on(const void *context) {
    (void)context;
    install(SIGSEGV, earlier_plain, 0);
    require(os_fault_catch(mend));
    page = map_page(PROT_NONE);
    touch(page + 100);
    require(page[100] == 1 && seen_count == 1);
    require(seen.address == (uintptr_t)page + 100);
#if defined(__x86_64__)
    require(seen.access == OS_ACCESS_WRITE);
    require(mprotect(page, 65536, PROT_NONE) == 0);
    require(*(volatile char *)(page + 100) == 1);
    require(seen_count == 2 && seen.access == OS_ACCESS_READ);
#endif
    return 5;
}

static int later_handlers_replace(const void *context) {
    (void)context;
    install(SIGSEGV, SIG_DFL, 0);
    require(os_fault_catch(mend));
    install(SIGSEGV, end_mine, 0);
    page = map_page(PROT_NONE);
    touch(page);
    return 0;
}

static int wait_status(int (*scenario)(const void *context), const void *context) {
    const pid_t child = fork();
    if (child == 0) {
        alarm(300);
        _exit(scenario(context));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void expect_signal(int (*scenario)(const void *context), const void *context, int expected) {
    const int status = wait_status(scenario, context);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), expected);
}

static void test_the_default_follows(void **state) {
    (void)state;
    const int signals[] = {SIGSEGV, SIGBUS};
    expect_signal(default_follows, NULL, SIGSEGV);
    expect_signal(sent_signals_have_their_default, &signals[0], SIGSEGV);
    expect_signal(sent_signals_have_their_default, &signals[1], SIGBUS);
    expect_signal(not_ignored_when_it_is_a_fault, NULL, SIGSEGV);
    assert_int_equal(run_scenario(ignored_when_sent, NULL), 5);
}

static void test_the_earlier_handler_follows(void **state) {
    (void)state;
    assert_int_equal(run_scenario(earlier_handler_follows, NULL), EARLIER);
    assert_int_equal(run_scenario(earlier_handler_with_information, NULL), EARLIER);
    assert_int_equal(run_scenario(earlier_handler_may_return, NULL), 3);
    expect_signal(earlier_handler_for_once, NULL, SIGSEGV);
}

static void test_mended_faults_go_on(void **state) {
    (void)state;
    assert_int_equal(run_scenario(mended_faults_go_on, NULL), 5);
}

#if defined(__x86_64__)
// Where no emulator runs this: an emulator's own handlers of these two signals interrupt, whatever the program's do.
//
// The child of a fork sends the signal while its parent waits in a call of the system.
static bool is_read_restarted(int signal_number, void (*earlier)(int), int flags) {
    install(signal_number, earlier, flags);
    require(os_fault_catch(not_mine));
    int ends[2];
    require(pipe(ends) == 0);
    const pid_t child = fork();
    require(child >= 0);
    if (child == 0) {
        for (unsigned i = 0; i < 10; i++) {
            usleep(20000);
            kill(getppid(), signal_number);
        }
        usleep(20000);
        _exit(write(ends[1], "x", 1) != 1);
    }
    char byte;
    const bool is_read = read(ends[0], &byte, 1) == 1;
    require(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    return is_read;
}

static void count_earlier(int signal_number) {
    (void)signal_number;
    earlier_count++;
}

static void test_calls_are_restarted_as_before(void **state) {
    (void)state;
    assert_true(is_read_restarted(SIGBUS, SIG_IGN, 0));
    assert_int_equal(earlier_count, 0);
    assert_true(is_read_restarted(SIGBUS, count_earlier, SA_RESTART));
    assert_in_range(earlier_count, 1, 10);
    assert_false(is_read_restarted(SIGSEGV, count_earlier, 0));
}
#endif

// The emulator does not know such a signal.
#if defined(__x86_64__)
static int damage_is_told(const void *context) {
    install(SIGBUS, *(const bool *)context ? SIG_IGN : SIG_DFL, 0);
    require(os_fault_catch(not_mine));
    siginfo_t info;
    memset(&info, 0, sizeof info);
    info.si_signo = SIGBUS;
    info.si_code = BUS_MCEERR_AO;
    syscall(SYS_rt_tgsigqueueinfo, getpid(), os_thread_id(), SIGBUS, &info);
    return 5;
}

static void test_what_does_not_fault_again_has_its_default(void **state) {
    (void)state;
    const bool ignored[] = {false, true};
    expect_signal(damage_is_told, &ignored[0], SIGBUS);
    assert_int_equal(run_scenario(damage_is_told, &ignored[1]), 5);
}
#endif

static void test_later_handlers_replace(void **state) {
    (void)state;
    assert_int_equal(run_scenario(later_handlers_replace, NULL), MINE);
}

// ---- Stacks

__attribute__((noinline)) static void capture_at(unsigned depth, struct stack *stack) {
    if (depth == 0) {
        os_stack_capture(stack);
    } else {
        capture_at(depth - 1, stack);
    }
    __asm__ volatile("" ::: "memory");  // no tail call
}

static void test_stacks(void **state) {
    (void)state;
    struct stack shallow, deep, cut;
    capture_at(0, &shallow);
    capture_at(5, &deep);
    capture_at(100, &cut);
    assert_int_equal(shallow.thread, os_thread_id());
    assert_true(shallow.count >= 1);
    if (!WALKS_ALL_CODE) {
        return;
    }
    assert_int_equal(cut.count, STACK_FRAMES_MAX);
    assert_true(deep.count > 6);
    // os_stack_capture, the call of it, then the calls that are one more the same, down to the test.
    for (uint32_t i = 3; i < 6; i++) {
        assert_int_equal(deep.frames[i], deep.frames[2]);
        assert_int_not_equal(shallow.frames[i], deep.frames[2]);
    }
}

#if defined(__GLIBC__)
// libgcc's own walk says the same: through the C library's code, and through a signal's handler.
static struct stack ours, theirs;

static _Unwind_Reason_Code note_frame(struct _Unwind_Context *context, void *argument) {
    struct stack *stack = argument;
    int is_exact = 0;
    const uintptr_t pc = _Unwind_GetIPInfo(context, &is_exact);
    if (pc == 0 || stack->count == STACK_FRAMES_MAX) {
        return _URC_END_OF_STACK;
    }
    stack->frames[stack->count++] = is_exact ? pc : pc - 1;
    return _URC_NO_REASON;
}

static void capture_both(int signal_number) {
    (void)signal_number;
    ours.count = theirs.count = 0;
    os_stack_capture(&ours);
    _Unwind_Backtrace(note_frame, &theirs);
    __asm__ volatile("" ::: "memory");  // no tail call
}

static int compare_and_capture(const void *a, const void *b) {
    raise(SIGUSR1);
    return *(const int *)a - *(const int *)b;
}

static void test_stacks_are_those_of_libgcc(void **state) {
    (void)state;
    int numbers[] = {3, 1, 2};
    install(SIGUSR1, capture_both, 0);
    qsort(numbers, ARRAY_COUNT(numbers), sizeof *numbers, compare_and_capture);
    // Behind os_stack_capture and the two calls of capture_both.
    assert_true(theirs.count > 4);
    assert_true(ours.count > 4);
    for (uint32_t i = 2; i < ours.count && i - 1 < theirs.count; i++) {
        assert_int_equal(ours.frames[i], theirs.frames[i - 1]);
    }
}

#if defined(__x86_64__)
// A function whose table has addresses of eight bytes, as compilers write it for the large code model: pc-relative, signed.
void call_by_long_table(void (*function)(void));
__asm__(".text\n"
        ".type call_by_long_table, @function\n"
        "call_by_long_table:\n\t"
        "subq $8, %rsp\n\tcall *%rdi\n\taddq $8, %rsp\n\tret\n"
        ".Lfunction_end:\n\t"
        ".size call_by_long_table, .Lfunction_end - call_by_long_table\n\t"
        ".pushsection .eh_frame, \"a\"\n"
        ".Lcommon:\n\t"
        ".long .Lcommon_end - . - 4\n\t.long 0\n\t.byte 1\n\t.asciz \"zR\"\n\t"
        ".byte 1, 0x78, 16, 1, 0x1c\n\t"  // factors 1 and -8, the return address, one byte follows
        ".byte 0x0c, 7, 8, 0x90, 1\n\t"   // the frame is rsp + 8, the return address below it
        ".balign 8\n"
        ".Lcommon_end:\n\t"
        ".long .Lentry_end - . - 4\n\t.long . - .Lcommon\n\t"
        ".quad call_by_long_table - .\n\t"
        ".quad .Lfunction_end - call_by_long_table\n\t"
        ".byte 0, 0x44, 0x0e, 16\n\t"  // four bytes on the frame is rsp + 16
        ".balign 8\n"
        ".Lentry_end:\n\t"
        ".popsection\n");

// One whose table has what compilers seldom write. The caller is found by all of it.
void call_by_rare_rules(void (*function)(void));
__asm__(".text\n"
        ".type call_by_rare_rules, @function\n"
        "call_by_rare_rules:\n\t"
        ".cfi_startproc\n\t"
        "subq $8, %rsp\n\t"
        ".cfi_escape 0x12, 7, 0x7e\n\t"         // def_cfa_sf: rsp + -2 * -8
        ".cfi_escape 0x09, 15, 15\n\t"          // register: r15 is in r15
        ".cfi_escape 0x16, 14, 2, 0x7e, 0\n\t"  // val_expression: r14 + 0
        ".cfi_escape 0x10, 13, 2, 0x77, 0\n\t"  // expression: at rsp
        ".cfi_escape 0x14, 12, 1\n\t"           // val_offset: the frame - 8
        ".cfi_escape 0x2e, 0\n\t"               // GNU_args_size
        ".cfi_escape 0x11, 16, 1\n\t"           // offset_extended_sf: the return address, 1 * -8
        "call *%rdi\n\t"
        "addq $8, %rsp\n\tret\n\t"
        ".cfi_endproc\n\t"
        ".size call_by_rare_rules, . - call_by_rare_rules\n");

// One that has no table, as code that was made at run time, and keeps a frame pointer.
void call_by_frame_pointer(void (*function)(void));
__asm__(".text\n"
        ".type call_by_frame_pointer, @function\n"
        "call_by_frame_pointer:\n\t"
        "pushq %rbp\n\tmovq %rsp, %rbp\n\tcall *%rdi\n\tpopq %rbp\n\tret\n\t"
        ".size call_by_frame_pointer, . - call_by_frame_pointer\n");

static struct stack by_table;

__attribute__((noinline)) static void capture_by_table(void) {
    os_stack_capture(&by_table);
    __asm__ volatile("" ::: "memory");  // no tail call
}

typedef void caller(void (*function)(void));

static int walk_by_table(const void *context) {
    caller *const *call = context;
    (*call)(capture_by_table);
    // os_stack_capture, the capture, the function, this.
    require(by_table.count > 4);
    require(by_table.frames[2] - (uintptr_t)*call < 16);
    require(by_table.frames[3] - (uintptr_t)&walk_by_table < 64);
    return 5;
}

static void test_tables_with_long_addresses(void **state) {
    (void)state;
    caller *const call = call_by_long_table;
    assert_int_equal(run_scenario(walk_by_table, &call), 5);
}

static void test_a_frame_pointer_where_no_table_is(void **state) {
    (void)state;
    caller *const call = call_by_frame_pointer;
    assert_int_equal(run_scenario(walk_by_table, &call), 5);
}

static void test_tables_with_rare_rules(void **state) {
    (void)state;
    caller *const call = call_by_rare_rules;
    assert_int_equal(run_scenario(walk_by_table, &call), 5);
}
#endif

// Greenlets put parts of other stacks where a stack was, and a coroutine's may end where nothing follows.
enum torn { FILLED, ENDS };

static ucontext_t torn_context, way_back;
static struct stack torn_stack;
static enum torn torn;

// Of a stack that ends with its mapping: from the return address on it is of no call.
__attribute__((noinline, noreturn)) static void tear_and_capture(void) {
    char *const end = (char *)torn_context.uc_stack.ss_sp + torn_context.uc_stack.ss_size;
    for (char *at = (char *)__builtin_dwarf_cfa() - sizeof(uintptr_t); at < end; at++) {
        *(volatile char *)at = torn == FILLED ? (char)(0x40 + (uintptr_t)at % 7) : 0;
    }
    os_stack_capture(&torn_stack);
    require(torn_stack.count >= 1 && torn_stack.count < 5);
    _exit(5);
}

static void run_on_torn_stack(void) {
    tear_and_capture();
}

static int stack_is_torn(const void *how) {
    torn = *(const enum torn *)how;
    char *start = map_page(PROT_READ | PROT_WRITE);
    require(mprotect(start + 32768, 32768, PROT_NONE) == 0);
    require(getcontext(&torn_context) == 0);
    torn_context.uc_stack.ss_sp = start;
    torn_context.uc_stack.ss_size = 32768;
    torn_context.uc_link = &way_back;
    makecontext(&torn_context, run_on_torn_stack, 0);
    swapcontext(&way_back, &torn_context);
    return 1;
}

static void test_stacks_that_are_no_chain(void **state) {
    (void)state;
    for (enum torn how = FILLED; how <= ENDS; how++) {
        assert_int_equal(run_scenario(stack_is_torn, &how), 5);
    }
}

#endif

static struct stack interrupted;

static bool capture_and_mend(const struct os_fault *fault) {
    os_stack_capture_interrupted(&interrupted, fault->context, false);
    return mend(fault);
}

static int stack_of_a_fault(const void *context) {
    (void)context;
    install(SIGSEGV, SIG_DFL, 0);
    require(os_fault_catch(capture_and_mend));
    page = map_page(PROT_NONE);
    touch(page);
    // The innermost frame is the instruction that faulted.
    const uintptr_t function = (uintptr_t)&touch;
    require(interrupted.frames[0] - function < 256);
    require(interrupted.count >= (WALKS_ALL_CODE ? 2 : 1));
    require(interrupted.thread == os_thread_id());
    return 5;
}

static void test_the_stack_of_a_fault(void **state) {
    (void)state;
    assert_int_equal(run_scenario(stack_of_a_fault, NULL), 5);
}

// In the file, as zeroed variables are not: theirs is a mapping without a name.
static volatile int initialised = 1;

static void test_modules(void **state) {
    (void)state;
    struct os_module module, of_library;
    assert_true(os_module_find((uintptr_t)&test_modules, &module));
    assert_non_null(strstr(module.path, "unit_os_fault"));
    assert_true(module.base <= (uintptr_t)&test_modules);
    // Its first bytes are an ELF file's.
    assert_memory_equal((const void *)module.base, "\177ELF", 4);
    assert_true(os_module_find((uintptr_t)&initialised, &of_library));
    assert_int_equal(of_library.base, module.base);
    assert_false(os_module_find((uintptr_t)&module, &of_library));
    assert_false(os_module_find(0, &of_library));
}

static void test_a_long_path_is_whole(void **state) {
    (void)state;
    char path[MODULE_PATH_MAX] = "/tmp/hakmem_XXXXXX";
    assert_non_null(mkdtemp(path));
    const size_t top = strlen(path);
    memset(path + top, 'd', MODULE_PATH_MAX - 2 - top);
    path[top] = '/';
    path[top + 120] = '\0';
    assert_int_equal(mkdir(path, 0700), 0);
    path[top + 120] = '/';
    const int file = open(path, O_RDWR | O_CREAT, 0600);
    assert_true(file >= 0 && ftruncate(file, 65536) == 0);
    void *start = mmap(NULL, 65536, PROT_READ, MAP_PRIVATE, file, 0);
    assert_true(start != MAP_FAILED);
    close(file);
    struct os_module module;
    assert_true(os_module_find((uintptr_t)start, &module));
    assert_string_equal(module.path, path);
    munmap(start, 65536);
    unlink(path);
    path[top + 120] = '\0';
    rmdir(path);
    path[top] = '\0';
    rmdir(path);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_default_follows),
        cmocka_unit_test(test_the_earlier_handler_follows),
        cmocka_unit_test(test_mended_faults_go_on),
#if defined(__x86_64__)
        cmocka_unit_test(test_calls_are_restarted_as_before),
        cmocka_unit_test(test_what_does_not_fault_again_has_its_default),
#endif
        cmocka_unit_test(test_later_handlers_replace),
        cmocka_unit_test(test_stacks),
#if defined(__GLIBC__)
        cmocka_unit_test(test_stacks_are_those_of_libgcc),
        cmocka_unit_test(test_stacks_that_are_no_chain),
#if defined(__x86_64__)
        cmocka_unit_test(test_tables_with_long_addresses),
        cmocka_unit_test(test_a_frame_pointer_where_no_table_is),
        cmocka_unit_test(test_tables_with_rare_rules),
#endif
#endif
        cmocka_unit_test(test_the_stack_of_a_fault),
        cmocka_unit_test(test_modules),
        cmocka_unit_test(test_a_long_path_is_whole),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
