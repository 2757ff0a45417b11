// A library that is loaded and unloaded again and again: it allocates in its constructors, keeps a
// thread_local object, hands blocks out, and frees in its destructors. Its handlers of fork go with it.
#include <pthread.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace {

std::map<int, std::string> table = [] {
    std::map<int, std::string> made;
    for (int i = 0; i < 200; i++) {
        made[i] = std::string(static_cast<std::size_t>(i), 'p');
    }
    return made;
}();

int fork_handlers_run;

void handle_fork() {
    fork_handlers_run++;
}

const int registered = pthread_atfork(handle_fork, handle_fork, handle_fork);

}  // namespace

extern "C" int plugin_fork_handlers_run() {
    return registered == 0 ? fork_handlers_run : -1;
}

extern "C" void *plugin_take(std::size_t bytes) {
    std::vector<std::string> scratch(50, std::string(300, 'q'));
    return scratch.size() == 50 && table.size() == 200 ? std::malloc(bytes) : nullptr;
}

extern "C" void plugin_give_back(void *block) {
    std::free(block);
}
