// src/os/os.h, but that threads of the explored program, which are all one thread of the system, are told apart. Found before the
// real header.
#pragma once

#include_next "os/os.h"

#include "../../explorer.h"

#define os_thread_pointer explorer_thread
