// The file that statistics and leaks are written to at exit. Apart from start.c, whose constructor comes along with all that refers to it.
#pragma once

// It is what standard error leads to at the first call.
void exit_file_keep(void);

// Its descriptor, or -1 where nobody is to read: what is written there is lost.
int exit_file_output(void);
