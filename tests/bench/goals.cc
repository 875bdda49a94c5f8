#include "tests/bench/goals.h"

#include "absl/strings/str_format.h"

namespace flash {
namespace {

using Json = nlohmann::json;

void Compare(const Json& goal, const Json& found, const std::string& place,
             std::vector<std::string>& missed);

void CompareNumber(const Json& goal, const Json& found,
                   const std::string& place, std::vector<std::string>& missed) {
  if (!found.is_number()) {
    missed.push_back(place + " was not measured");
    return;
  }
  const double number = found.get<double>();
  if (goal.contains("min") && !(number >= goal["min"].get<double>())) {
    missed.push_back(absl::StrFormat("%s is %.3f, at least %.3f is wanted",
                                     place, number, goal["min"].get<double>()));
  }
  if (goal.contains("max") && !(number <= goal["max"].get<double>())) {
    missed.push_back(absl::StrFormat("%s is %.3f, at most %.3f is wanted",
                                     place, number, goal["max"].get<double>()));
  }
}

void CompareEntries(const Json& goals, const Json& found,
                    const std::string& place,
                    std::vector<std::string>& missed) {
  for (const Json& goal : goals) {
    const std::string name =
        absl::StrFormat("%s[batch %d]", place, goal["batch"].get<int>());
    Json entry;
    if (found.is_array()) {
      for (const Json& candidate : found) {
        if (candidate["batch"] == goal["batch"]) entry = candidate;
      }
    }
    for (const auto& [key, value] : goal.items()) {
      if (key == "batch") continue;
      Compare(value, entry.is_object() ? entry.value(key, Json()) : Json(),
              name + "." + key, missed);
    }
  }
}

void Compare(const Json& goal, const Json& found, const std::string& place,
             std::vector<std::string>& missed) {
  if (goal.is_array()) return CompareEntries(goal, found, place, missed);
  if (goal.contains("min") || goal.contains("max")) {
    return CompareNumber(goal, found, place, missed);
  }
  for (const auto& [key, value] : goal.items()) {
    Compare(value, found.is_object() ? found.value(key, Json()) : Json(),
            place.empty() ? key : place + "." + key, missed);
  }
}

}  // namespace

std::vector<std::string> MissedGoals(const Json& goals, const Json& report) {
  std::vector<std::string> missed;
  Compare(goals, report, "", missed);
  return missed;
}

}  // namespace flash
