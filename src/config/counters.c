#include "config/counters.h"

struct counters process_counters;
