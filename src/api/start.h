// The end of the process; its beginning calls itself (start.c).
#pragma once

// Runs the exit checks and reports once; also called by the destructor of the library.
void start_finish(void);
