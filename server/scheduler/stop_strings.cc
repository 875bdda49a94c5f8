#include "server/scheduler/stop_strings.h"

#include <algorithm>
#include <utility>

namespace flash {

StopStrings::StopStrings(std::span<const std::string> strings) {
  patterns_.reserve(strings.size());
  for (const std::string& string : strings) {
    std::vector<int32_t> border(string.size() + 1, 0);
    int32_t matched = 0;
    for (size_t n = 1; n < string.size(); ++n) {
      while (matched > 0 && string[n] != string[matched]) {
        matched = border[matched];
      }
      if (string[n] == string[matched]) ++matched;
      border[n + 1] = matched;
    }
    patterns_.push_back({string, std::move(border)});
  }
}

StopSearch::StopSearch(const StopStrings& strings)
    : strings_(&strings), matched_(strings.size(), 0) {}

std::optional<StopSearch::Match> StopSearch::FindIn(std::string_view text) {
  if (matched_.empty()) return std::nullopt;
  for (size_t at = 0; at < text.size(); ++at) {
    if (const std::optional<int> index = Take(text[at])) {
      return Match{*index, at + 1};
    }
  }
  return std::nullopt;
}

void StopSearch::PassOver(std::string_view text) {
  if (matched_.empty()) return;
  for (const char byte : text) Take(byte);
}

size_t StopSearch::num_held() const {
  if (matched_.empty()) return 0;
  return *std::max_element(matched_.begin(), matched_.end());
}

std::optional<int> StopSearch::Take(char byte) {
  std::optional<int> longest;
  for (int i = 0; i < strings_->size(); ++i) {
    const auto& [string, border] = strings_->patterns_[i];
    if (string.empty()) continue;
    int32_t& matched = matched_[i];
    while (matched > 0 && string[matched] != byte) matched = border[matched];
    if (string[matched] == byte) ++matched;
    if (matched < static_cast<int32_t>(string.size())) continue;
    matched = border[matched];
    if (!longest || string.size() > strings_->string(*longest).size()) {
      longest = i;
    }
  }
  return longest;
}

}  // namespace flash
