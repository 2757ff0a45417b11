// Templates, lambdas and containers: a translation unit that costs the compiler a lot of memory,
// and a program that allocates through every container of the standard library.
#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <future>
#include <iostream>
#include <list>
#include <map>
#include <memory>
#include <numeric>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <unordered_map>
#include <variant>
#include <vector>

namespace {

template <int Depth> struct Nested {
    std::map<std::string, std::tuple<int, std::vector<Nested<Depth - 1>>>> children;
    std::variant<int, std::string, std::unique_ptr<Nested<Depth - 1>>> value;

    std::size_t count() const {
        std::size_t found = 1;
        for (const auto &[name, child] : children) {
            for (const auto &nested : std::get<1>(child)) {
                found += nested.count() + name.size();
            }
        }
        return found;
    }
};

template <> struct Nested<0> {
    std::size_t count() const {
        return 1;
    }
};

template <int Depth> Nested<Depth> grow() {
    Nested<Depth> nested;
    if constexpr (Depth > 0) {
        for (int i = 0; i < 4; ++i) {
            std::vector<Nested<Depth - 1>> children;
            children.push_back(grow<Depth - 1>());
            nested.children.emplace("child" + std::to_string(i),
                                    std::make_tuple(i, std::move(children)));
        }
        nested.value = std::string(static_cast<std::size_t>(Depth) * 30, 'v');
    }
    return nested;
}

template <typename Container> std::size_t churn(Container container) {
    for (int i = 0; i < 2000; ++i) {
        container.insert(container.end(), typename Container::value_type(std::to_string(i * 7919)));
    }
    container.erase(std::next(container.begin(), 100), std::next(container.begin(), 900));
    return std::accumulate(
        container.begin(), container.end(), std::size_t{0},
        [](std::size_t sum, const auto &text) { return sum * 31 + text.size(); });
}

}  // namespace

int main() {
    std::cout << grow<3>().count() << '\n';
    std::cout << churn(std::vector<std::string>{}) << ' ' << churn(std::deque<std::string>{}) << ' '
              << churn(std::list<std::string>{}) << ' ' << churn(std::set<std::string>{}) << ' '
              << churn(std::multiset<std::string>{}) << '\n';
    std::vector<std::future<std::size_t>> futures;
    for (int i = 0; i < 4; ++i) {
        futures.push_back(std::async(std::launch::async, [i] {
            std::unordered_map<int, std::function<int(int)>> table;
            for (int k = 0; k < 1000; ++k) {
                table[k * 17] = [k, i, text = std::string(40, 'x')](int n) {
                    return k + i + n + static_cast<int>(text.size());
                };
            }
            return std::accumulate(table.begin(), table.end(), std::size_t{0},
                                   [](std::size_t sum, const auto &entry) {
                                       return sum + static_cast<std::size_t>(entry.second(1));
                                   });
        }));
    }
    for (auto &future : futures) {
        std::cout << future.get() << '\n';
    }
    std::ostringstream text;
    for (int i = 0; i < 500; ++i) {
        text << "item" << i << '=' << i * i << ';';
    }
    const std::string line = text.str();
    const std::regex item("item([0-9]+)=([0-9]*6);");
    std::cout << std::distance(std::sregex_iterator(line.begin(), line.end(), item), {}) << '\n';
    try {
        std::vector<char> impossible(static_cast<std::size_t>(-1) / 4);
        std::cout << impossible.size() << '\n';
    } catch (const std::bad_alloc &) {
        std::cout << "bad_alloc\n";
    }
}
