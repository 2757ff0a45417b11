/* The slots of a loaded object through which it calls malloc, free, calloc and realloc: words that
 * the loader fills with the address of the function it found. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A loaded object, as the loader's list gives it. */
struct module {
    const char *name; /* as the loader names it; "" for the program itself */
    uintptr_t base;
    const void *headers; /* ElfW(Phdr)[] */
    size_t header_count;
    const void *local; /* the calling thread's thread-local data of it; NULL when there is none */
};

struct dl_phdr_info;
struct module module_from(const struct dl_phdr_info *info);

/* The next program header of that type after `previous`, or the first; NULL at the end. */
const void *module_header(const struct module *module, uint32_t type, const void *previous);

/* Whether the address lies in the object. */
bool module_holds(const struct module *module, uintptr_t address);

/* The object that an address lies in; false when it lies in none. */
bool module_of(uintptr_t address, struct module *module);

/* The program itself. */
struct module module_program(void);

/* Calls `visit` for each slot. One that is bound at the first call and was never used holds an
 * address within its own module. */
void slots_each(const struct module *module,
                void (*visit)(const char *symbol, uintptr_t target, void *argument),
                void *argument);
