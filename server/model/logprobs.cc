#include "server/model/logprobs.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "kernels/check.h"
#include "server/model/logit_loops.h"

namespace flash {

absl::StatusOr<Logprobs> Logprobs::Of(std::span<const float> logits) {
  FLASH_CHECK(!logits.empty());
  const LogitScan scan = ScanLogits(logits);
  if (scan.faulted || scan.index < 0) {
    return absl::InternalError("a logit is not a finite number");
  }
  const double sum = SumExponentials(logits, scan.highest);
  return Logprobs(logits, scan.highest + std::log(sum));
}

TokenLogprob Logprobs::Id(int32_t id) const {
  TokenLogprob token = IdUnranked(id);
  token.rank = 1 + CountBefore(logits_, id);
  return token;
}

TokenLogprob Logprobs::IdUnranked(int32_t id) const {
  FLASH_CHECK(id >= 0 && static_cast<size_t>(id) < logits_.size());
  return {id, static_cast<float>(logits_[id] - log_normalizer_), 0};
}

std::vector<TokenLogprob> Logprobs::Top(int32_t k) const {
  k = std::min(k, static_cast<int32_t>(logits_.size()));
  std::vector<LogitKey> keys(NumSelectKeys(logits_.size(), k));
  keys.resize(SelectHighest(logits_, k, keys));
  std::sort(keys.begin(), keys.end(), std::greater<>());
  std::vector<TokenLogprob> top;
  top.reserve(keys.size());
  for (const LogitKey key : keys) {
    top.push_back(IdUnranked(IndexOf(key)));
    top.back().rank = static_cast<int32_t>(top.size());
  }
  return top;
}

}  // namespace flash
