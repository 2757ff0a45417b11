// Forks beside a thread before hakmem's own constructor.
#include "behaviour.h"

unsigned early_forks(void);

int main(void) {
    require(early_forks() == 200);
    behaviour_require_sound_heap();
    return 0;
}
