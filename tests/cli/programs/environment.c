// Starts a program with an environment that no shell makes: environment WORD... -- PROGRAM ARGUMENT...
//
// The words come behind the variables that are there, whatever they are.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv) {
    int words = 0, variables = 0;
    while (words + 1 < argc && strcmp(argv[words + 1], "--") != 0) {
        words++;
    }
    while (environ[variables] != NULL) {
        variables++;
    }
    char **made = calloc((size_t)(words + variables + 1), sizeof *made);
    if (made == NULL || words + 2 >= argc) {
        return 2;
    }
    memcpy(made, environ, (size_t)variables * sizeof *made);
    memcpy(made + variables, argv + 1, (size_t)words * sizeof *made);
    execve(argv[words + 2], argv + words + 2, made);
    return 2;
}
