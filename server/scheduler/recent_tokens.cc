#include "server/scheduler/recent_tokens.h"

#include <algorithm>

#include "kernels/check.h"

namespace flash {

RecentTokens::RecentTokens(const Snapshot* before) {
  if (before == nullptr) return;
  for (const RecentToken& token : before->recent) {
    Append(token.id, token.is_output);
  }
  num_tokens_ = before->num_tokens();
}

void RecentTokens::Append(int32_t id, bool is_output) {
  // Now and then the older half goes: that moves each token once.
  if (tokens_.size() == 2 * size_t{kMaxPenaltyWindow}) {
    tokens_.erase(tokens_.begin(), tokens_.begin() + kMaxPenaltyWindow);
  }
  tokens_.push_back(2 * static_cast<uint32_t>(id) + (is_output ? 1 : 0));
  ++num_tokens_;
}

void RecentTokens::AppendPrompt(std::span<const int32_t> ids) {
  const size_t num_kept = std::min(ids.size(), size_t{kMaxPenaltyWindow});
  num_tokens_ += static_cast<int64_t>(ids.size() - num_kept);
  if (num_kept < ids.size()) tokens_.clear();
  for (const int32_t id : ids.last(num_kept)) Append(id, false);
}

void RecentTokens::Truncate(int64_t num_tokens) {
  FLASH_CHECK(Knows(num_tokens));
  tokens_.resize(tokens_.size() - (num_tokens_ - num_tokens));
  num_tokens_ = num_tokens;
}

bool RecentTokens::Knows(int64_t num_tokens) const {
  const int64_t num_after = num_tokens_ - num_tokens;
  return num_after >= 0 && num_after <= kMaxPenaltyWindow &&
         num_after <= static_cast<int64_t>(tokens_.size());
}

std::vector<int32_t> RecentTokens::Ids(int64_t first, int64_t end) const {
  FLASH_CHECK(Knows(first) && first <= end && end <= num_tokens_);
  std::vector<int32_t> ids;
  ids.reserve(end - first);
  const auto at = [&](int64_t place) {
    return tokens_.end() - (num_tokens_ - place);
  };
  for (auto token = at(first); token != at(end); ++token) {
    ids.push_back(static_cast<int32_t>(*token >> 1));
  }
  return ids;
}

std::vector<RecentToken> RecentTokens::Last() const {
  const size_t num = std::min(tokens_.size(), size_t{kMaxPenaltyWindow});
  std::vector<RecentToken> last;
  last.reserve(num);
  for (auto token = tokens_.end() - num; token != tokens_.end(); ++token) {
    last.push_back({static_cast<int32_t>(*token >> 1), *token % 2 == 1});
  }
  return last;
}

}  // namespace flash
