#include "config/control.h"

struct control control;
