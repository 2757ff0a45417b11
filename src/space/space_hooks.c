#include "space/space_hooks.h"

struct space_hooks space_hooks;
