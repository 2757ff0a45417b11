// Explores one program: as it is, nothing is wrong; with any one of its orders dropped, something is.
#include "main.h"

#include <stdio.h>

int main(void) {
    uint64_t states;
    const char *wrong = explorer_search(&explored, NULL, &states);
    printf("%s: %llu states%s%s\n", explored.name, (unsigned long long)states,
           wrong == NULL ? "" : ": ", wrong == NULL ? "" : wrong);
    int missed = 0;
    for (const struct weakening *weakening = weakenings; weakening->operand != NULL; weakening++) {
        const char *found = explorer_search(&explored, weakening, &states);
        printf("%s without %s on %s: %llu states: %s\n", explored.name,
               weakening->order == ACQUIRE ? "acquire" : "release", weakening->operand,
               (unsigned long long)states, found == NULL ? "NOTHING FOUND" : found);
        missed += found == NULL;
    }
    return wrong != NULL || missed != 0;
}
