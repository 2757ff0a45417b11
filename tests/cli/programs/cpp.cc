// Uses the C++ operators that the language brings.
#include <map>
#include <string>

int main() {
    std::map<std::string, std::string> names;
    for (int i = 0; i < 1000; i++) {
        names[std::to_string(i)] = std::string(100, 'x');
    }
    return names.size() == 1000 ? 0 : 1;
}
