// thread_local objects with destructors that free and allocate; they run when the thread ends,
// before and after those of others, and at the end of the process for the main thread.
#include "behaviour.h"

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

std::atomic<unsigned long> destroyed;

struct Cache {
    std::map<int, std::string> entries;
    std::unique_ptr<std::vector<std::string>> strings =
        std::make_unique<std::vector<std::string>>();

    ~Cache() {
        for (int i = 0; i < 20; i++) {
            strings->push_back(std::string(static_cast<std::size_t>(100 + i), 'z'));
        }
        entries.clear();
        destroyed++;
    }
};

thread_local Cache first;
thread_local std::string text = std::string(500, 't');
thread_local Cache second;

void use() {
    for (int i = 0; i < 50; i++) {
        first.entries[i] = std::string(static_cast<std::size_t>(i * 20), 'a');
        second.strings->push_back(text + std::to_string(i));
    }
    first.entries.erase(10);
    require(second.strings->size() == 50);
}

}  // namespace

int main() {
    behaviour_require_allocator();
    size_t early = 0;
    for (int round = 0; round < 400; round++) {
        std::thread one(use);
        std::thread two(use);
        one.join();
        two.join();
        if (round == 80) {
            malloc_trim(0);
            early = rss_bytes();
        }
    }
    require(destroyed == 1600);
    use();
    behaviour_require_sound_heap();
    malloc_trim(0);
    size_t late = rss_bytes();
    behaviour_say("RSS %zu KiB, then %zu KiB", early / KIB, late / KIB);
    require_that(late < early + lost_bytes_max(), "RSS grew by %zu KiB", (late - early) / KIB);
    return 0;
}
