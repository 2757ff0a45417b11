#include "os/sharing.h"

#if defined(HAKMEM_COUNT_SHARING)

#include "base/bits.h"
#include "base/text.h"
#include "os/os.h"

#include <time.h>

// The linker's names for the two ends of the array of sites.
extern struct sharing_site __start_sharing_sites[], __stop_sharing_sites[];

struct sharing_locks sharing_locks[SHARING_RANKS_MAX];

void sharing_lock_taken(uint64_t *taken_ticks) {
    *taken_ticks = os_ticks();
}

void sharing_lock_released(uint32_t rank, uint64_t taken_ticks) {
    const uint64_t ticks = os_ticks() - taken_ticks;
    const unsigned bits = ticks == 0 ? 0 : bit_highest(ticks) + 1;
    sharing_count(&sharing_locks[rank].held_by_bits[bits]);
}

static void write_number(struct text *line, const char *before, uint64_t number) {
    text_string(line, before);
    text_unsigned(line, number);
}

static void write_lock(struct text *line, const struct sharing_locks *locks) {
    write_number(line, "{\"taken\": ", locks->taken);
    write_number(line, ", \"found_held\": ", locks->found_held);
    write_number(line, ", \"slept\": ", locks->slept);
    write_number(line, ", \"woke\": ", locks->woke);
    write_number(line, ", \"tried\": ", locks->tried);
    write_number(line, ", \"refused\": ", locks->refused);
    text_string(line, ", \"held_by_bits\": [");
    for (size_t i = 0; i < sizeof locks->held_by_bits / sizeof locks->held_by_bits[0]; i++) {
        write_number(line, i == 0 ? "" : ", ", locks->held_by_bits[i]);
    }
    text_string(line, "]}");
}

static const char *file_name(const char *path) {
    const char *name = path;
    for (const char *at = path; *at != '\0'; at++) {
        name = *at == '/' ? at + 1 : name;
    }
    return name;
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t start_ticks, start_ns;

__attribute__((constructor)) static void note_start(void) {
    start_ticks = os_ticks();
    start_ns = now_ns();
}

__attribute__((destructor)) static void write_counts(void) {
    struct text line = {0};
    text_string(&line, "{\"schema\": \"hakmem-sharing-1\"");
    write_number(&line, ", \"ticks\": ", os_ticks() - start_ticks);
    write_number(&line, ", \"ns\": ", now_ns() - start_ns);
    text_string(&line, ", \"locks\": [");
    for (size_t rank = 0; rank < SHARING_RANKS_MAX; rank++) {
        text_string(&line, rank == 0 ? "" : ", ");
        write_lock(&line, &sharing_locks[rank]);
        text_flush(&line, 2);
    }
    text_string(&line, "], \"operations\": [");
    for (struct sharing_site *site = __start_sharing_sites; site < __stop_sharing_sites; site++) {
        text_string(&line, site == __start_sharing_sites ? "[\"" : ", [\"");
        text_string(&line, file_name(site->file));
        text_string(&line, "\", \"");
        text_string(&line, site->operation);
        write_number(&line, "\", ", site->count);
        text_string(&line, "]");
        text_flush(&line, 2);
    }
    text_string(&line, "]}\n");
    text_flush(&line, 2);
}

#endif
