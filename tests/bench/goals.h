// What a report of flash-bench must reach.

#ifndef TESTS_BENCH_GOALS_H_
#define TESTS_BENCH_GOALS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace flash {

// `goals` has the report's shape; in place of a number it has {"min": x},
// {"max": x} or both. Entries of arrays are those of the same "batch".
//
// Returns a sentence for each goal that is missed, or about which the report
// says nothing.
std::vector<std::string> MissedGoals(const nlohmann::json& goals,
                                     const nlohmann::json& report);

}  // namespace flash

#endif  // TESTS_BENCH_GOALS_H_
