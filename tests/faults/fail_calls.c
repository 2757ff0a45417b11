// Makes system calls of the allocator fail: for each kind of call, each error and each n, the program
// runs with the n-th such call failing, alone or with all that follow, for each n that it reaches
// without a failure, and on until it makes no n-th call. A row of the result is one kind, error and way.
//
// Every run must end well: requests are served, or refused with NULL and ENOMEM in one burst for one
// failing call; once calls succeed again nothing is refused, the heap is sound and the process holds
// what it holds without a failure.
#include "refuse.h"

#include <signal.h>
#include <sys/syscall.h>

// What a process may hold above the run without a failure: a superslab, the page map's other form
// when there was no room for the flat one, threads' memory in libc.
#define MORE_KIB_MAX ((size_t)6 * 1024)
// With madvise forbidden for good, what was used stays for the next use.
#define MORE_UNPURGED_KIB_MAX ((size_t)48 * 1024)
// libc keeps some blocks for threads and files, or not, as the failures let it.
#define MORE_BLOCKS_MAX 8
#define FAILURES_SHOWN_MAX 5
// By the clock a run makes a few calls more or fewer than the next one, as purges go: what is reached
// is what so many runs reach, and an n gets so many runs to be reached again.
#define TRIES 3
// Of the n that were reached, one in so many may fail to come again: the last of a load on a busy machine.
#define ONE_MISSED_IN 4

// Where the load makes the call: a row that then reaches none has tested nothing, and fails.
enum made { ALWAYS, IN_HARDENED, SELDOM };

struct call {
    const char *name;
    long numbers[2];
    bool by_anyone;
    enum made made;
};

static const struct call calls[] = {
    {"mmap", {SYS_mmap, -1}, false, ALWAYS},
    {"munmap", {SYS_munmap, -1}, false, ALWAYS},
    {"mprotect", {SYS_mprotect, -1}, false, ALWAYS},
    {"madvise", {SYS_madvise, -1}, false, ALWAYS},
    {"mremap", {SYS_mremap, -1}, false, ALWAYS},
    {"getrandom", {SYS_getrandom, -1}, false, IN_HARDENED},
    // libc's, between the allocator's handlers of fork and before a thread's first malloc.
    {"clone", {SYS_clone, SYS_clone3}, true, ALWAYS},
};
// What a sandbox may forbid from the first instruction on: wishes, all of them.
static const struct call wishes[] = {
    {"madvise", {SYS_madvise, -1}, false, ALWAYS},
    {"mremap", {SYS_mremap, -1}, false, ALWAYS},
    {"getrandom", {SYS_getrandom, -1}, true, IN_HARDENED},
    {"prctl", {SYS_prctl, SYS_membarrier}, true, SELDOM},
};

static const struct {
    const char *name;
    int number;
} errors[] = {{"ENOMEM", ENOMEM}, {"EAGAIN", EAGAIN}, {"EPERM", EPERM}};

enum way { ONCE, FROM_THEN_ON, FOR_GOOD };
static const char *const way_names[] = {"once", "from-then-on", "for-good"};

// What a run said at its end.
struct ending {
    unsigned int refused, bursts, unstarted;
    size_t mapped_kib, rss_kib, blocks;
};

struct row {
    enum way way;
    const struct call *call;
    const char *error;
    unsigned long reached;   // calls that can fail, in each run without a failure
    unsigned long runs;      // runs in which one did
    unsigned long served;    // runs in which no request was refused
    unsigned long refused;   // runs with at least one NULL
    unsigned int nulls_max;  // most NULLs of one run
    unsigned long failed;    // runs that ended badly
};

static struct {
    struct subject subject;
    enum way way;
    const char *only_call;
    const char *only_error;
    unsigned long stride;
} settings = {.stride = 1};

static struct ending reference;
static unsigned long failures;

static bool read_ending(const struct outcome *outcome, struct ending *ending) {
    const char *line = strstr(outcome->text, "refused ");
    return line != NULL &&
           sscanf(line, "refused %u bursts %u unstarted %u mapped %zu rss %zu blocks %zu",
                  &ending->refused, &ending->bursts, &ending->unstarted, &ending->mapped_kib,
                  &ending->rss_kib, &ending->blocks) == 6;
}

// What is wrong with a run, or NULL.
static const char *judge(const struct row *row, const struct outcome *outcome,
                         const struct ending *ending) {
    if (WIFSIGNALED(outcome->status)) {
        return "killed by a signal";
    }
    if (WEXITSTATUS(outcome->status) != 0) {
        return strstr(outcome->text, "main\n") != NULL ? "failed" : "ended before main";
    }
    const bool wish = row->way == FOR_GOOD || row->call->by_anyone || outcome->hit == 0;
    if (ending->refused > 0 && wish) {
        return "a request was refused";
    }
    if (row->way == ONCE && (ending->bursts > 1 || ending->refused > 2)) {
        return "more than one burst of refusals for one failing call";
    }
    if (ending->unstarted > (row->call->by_anyone ? 3 : ending->refused)) {
        return "a thread was refused";
    }
    const bool unpurged = row->way == FOR_GOOD && row->call->numbers[0] == SYS_madvise;
    const size_t more_kib = unpurged ? MORE_UNPURGED_KIB_MAX : MORE_KIB_MAX;
    if (ending->rss_kib > reference.rss_kib + more_kib) {
        return "memory is lost";
    }
    // Where every munmap was refused, address space stays, without memory.
    const bool unmapped = row->way != FROM_THEN_ON || row->call->numbers[0] != SYS_munmap;
    if (unmapped && ending->mapped_kib > reference.mapped_kib + more_kib) {
        return "address space is lost";
    }
    if (ending->blocks > reference.blocks + MORE_BLOCKS_MAX) {
        return "blocks are lost";
    }
    return NULL;
}

static void account(struct row *row, const struct refusal *refusal, const struct outcome *outcome) {
    struct ending ending = {0};
    const bool ended = read_ending(outcome, &ending);
    row->runs += outcome->hit > 0;
    const char *wrong =
        ended || outcome->status != 0 ? judge(row, outcome, &ending) : "said nothing";
    if (wrong == NULL) {
        row->served += outcome->hit > 0 && ending.refused == 0;
        row->refused += ending.refused != 0;
        row->nulls_max = ending.refused > row->nulls_max ? ending.refused : row->nulls_max;
        return;
    }
    row->failed++;
    if (failures++ < FAILURES_SHOWN_MAX) {
        behaviour_say("FAILED %s %s %s, call %lu: %s (status %#x)\n%.300s", row->call->name,
                      row->error, way_names[row->way], refusal->first, wrong,
                      (unsigned int)outcome->status, outcome->text);
        behaviour_say("without a failure: mapped %zu rss %zu blocks %zu", reference.mapped_kib,
                      reference.rss_kib, reference.blocks);
    }
}

static bool must_be_made(const struct call *call) {
    const char *mode = getenv("HAKMEM_MODE");
    const bool hardened = mode != NULL && strcmp(mode, "hardened") == 0;
    return call->made == ALWAYS || (call->made == IN_HARDENED && hardened);
}

static void run_without_failure(struct row *row) {
    const struct refusal none = {.numbers = {row->call->numbers[0], row->call->numbers[1]},
                                 .by_anyone = row->call->by_anyone,
                                 .for_good = row->way == FOR_GOOD};
    row->reached = (unsigned long)-1;
    for (int i = 0; i < TRIES; i++) {
        struct outcome outcome;
        refuse_run(&settings.subject, &none, &outcome);
        require_that(outcome.status == 0 && read_ending(&outcome, &reference),
                     "without a failure: status %#x\n%.300s", (unsigned int)outcome.status,
                     outcome.text);
        row->reached = outcome.seen < row->reached ? outcome.seen : row->reached;
    }
}

// Whether the call was made, and failed.
static bool fail_one(struct row *row, const struct refusal *refusal) {
    for (int i = 0; i < TRIES; i++) {
        struct outcome outcome;
        refuse_run(&settings.subject, refusal, &outcome);
        account(row, refusal, &outcome);
        if (outcome.hit > 0) {
            return true;
        }
    }
    return false;
}

// A row that tested nothing, or much less than it says, has failed.
static void require_reached(struct row *row, unsigned long chosen, unsigned long missed) {
    const bool nothing = row->runs == 0 && (chosen > 0 || must_be_made(row->call));
    if (nothing || missed > (chosen + ONE_MISSED_IN - 1) / ONE_MISSED_IN) {
        row->failed++;
        failures++;
        behaviour_say("FAILED %s %s %s: %s (%lu of %lu chosen calls)", row->call->name, row->error,
                      way_names[row->way],
                      chosen == 0 ? "the load made no such call, so none failed"
                                  : "what was reached without a failure did not come again",
                      missed, chosen);
    }
}

static void run_row(const struct call *call, enum way way, const char *error, int error_number) {
    struct row row = {.way = way, .call = call, .error = error};
    run_without_failure(&row);
    struct refusal refusal = {.numbers = {call->numbers[0], call->numbers[1]},
                              .by_anyone = call->by_anyone,
                              .for_good = way == FOR_GOOD,
                              .first = 1,
                              .failed = way == ONCE ? 1 : (unsigned long)-1,
                              .error = error_number};
    unsigned long chosen = 0;
    unsigned long missed = 0;
    bool more = true;
    while (more) {
        const bool hit = fail_one(&row, &refusal);
        chosen += refusal.first <= row.reached;
        missed += refusal.first <= row.reached && !hit;
        more = way != FOR_GOOD && (hit || refusal.first <= row.reached);
        refusal.first += settings.stride;
    }
    require_reached(&row, chosen, missed);
    behaviour_say("row %s %s %s reached %lu runs %lu served %lu refused %lu nulls %u failed %lu",
                  way_names[way], call->name, error, row.reached, row.runs, row.served, row.refused,
                  row.nulls_max, row.failed);
}

static void run_rows(const struct call *list, size_t count) {
    unsigned long rows = 0;
    for (size_t i = 0; i < count; i++) {
        for (size_t e = 0; e < sizeof errors / sizeof errors[0]; e++) {
            const bool meant =
                (settings.only_call == NULL || strcmp(settings.only_call, list[i].name) == 0) &&
                (settings.only_error == NULL || strcmp(settings.only_error, errors[e].name) == 0);
            if (meant) {
                run_row(&list[i], settings.way, errors[e].name, errors[e].number);
                rows++;
            }
        }
    }
    require_that(rows > 0, "no such call or error: nothing was tested");
}

static void read_arguments(int count, char **values) {
    static const char usage[] =
        "usage: fail_calls [--from-then-on | --for-good] [--call NAME] [--errno NAME] [--stride N] "
        "LIBRARY PROGRAM [ARGUMENT...]";
    int i = 1;
    for (; i < count && values[i][0] == '-'; i++) {
        if (strcmp(values[i], "--from-then-on") == 0) {
            settings.way = FROM_THEN_ON;
        } else if (strcmp(values[i], "--for-good") == 0) {
            settings.way = FOR_GOOD;
        } else {
            require_that(i + 1 < count, "%s", usage);
            const char *value = values[i + 1];
            if (strcmp(values[i], "--call") == 0) {
                settings.only_call = value;
            } else if (strcmp(values[i], "--errno") == 0) {
                settings.only_error = value;
            } else if (strcmp(values[i], "--stride") == 0) {
                settings.stride = strtoul(value, NULL, 10);
                require_that(settings.stride > 0, "%s", usage);
            } else {
                require_that(false, "%s", usage);
            }
            i++;
        }
    }
    require_that(i + 1 < count, "%s", usage);
    static char resolved[4096];
    require_that(realpath(values[i], resolved) != NULL, "%s: errno %d", values[i], errno);
    settings.subject = (struct subject){&values[i + 1], resolved};
}

int main(int count, char **values) {
    read_arguments(count, values);
    signal(SIGPIPE, SIG_IGN);
    if (settings.way == FOR_GOOD) {
        run_rows(wishes, sizeof wishes / sizeof wishes[0]);
    } else {
        run_rows(calls, sizeof calls / sizeof calls[0]);
    }
    behaviour_say("%lu failures", failures);
    return failures == 0 ? 0 : 1;
}
