#include "server/model/sampling_candidates.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace flash {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kHighestFinite = std::numeric_limits<float>::max();

// A changed logit must stay a number that the scan accepts, whatever the
// options were: NaN masks, +infinity is the highest finite number.
float Tamed(float logit) {
  if (std::isnan(logit)) return -kInfinity;
  return std::min(logit, kHighestFinite);
}

float Penalized(float logit, const TokenHistory::Entry& entry,
                const SamplingOptions& options) {
  const float penalty = options.repetition_penalty;
  logit = logit > 0 ? logit / penalty : logit * penalty;
  if (entry.in_output > 0) {
    logit -= options.presence_penalty;
    logit -= options.frequency_penalty * static_cast<float>(entry.in_output);
  }
  return Tamed(logit);
}

// The lowest key of the shortest run of the highest keys whose weights add up
// to `target`. Halves the part that is in question until one key is left; as
// sums are exact, the order in which they are added does not matter.
// REQUIRES: at least one key.
LogitKey SelectByWeight(std::span<LogitKey> keys,
                        std::span<const float> weights, double target) {
  double sum = 0;  // of the keys that are certainly in the run
  while (keys.size() > 1) {
    const size_t half = keys.size() / 2;
    std::nth_element(keys.begin(), keys.begin() + half, keys.end(),
                     std::greater<>());
    double sum_with_half = sum;
    for (const LogitKey key : keys.first(half)) {
      sum_with_half += weights[IndexOf(key)];
    }
    if (sum_with_half >= target) {
      keys = keys.first(half);
    } else {
      sum = sum_with_half;
      keys = keys.subspan(half);
    }
  }
  return keys.front();
}

}  // namespace

SamplingCandidates::SamplingCandidates(const SampleInput& input,
                                       SamplingScratch& scratch)
    : input_(input), scratch_(scratch) {
  const auto size = std::min(static_cast<int32_t>(input.logits.size()),
                             std::max(input.num_pieces, 0));
  const std::vector<int32_t>& allowed = input.options.allowed_token_ids;
  if (allowed.empty()) {
    logits_ = input.logits.first(size);
    return;
  }
  const auto begin = std::lower_bound(allowed.begin(), allowed.end(), 0);
  const auto end = std::lower_bound(begin, allowed.end(), size);
  ids_ = std::span(begin, end);
  for (size_t i = 0; i < ids_.size(); ++i) {
    scratch_.logits[i] = input.logits[ids_[i]];
  }
  logits_ = std::span(scratch_.logits).first(ids_.size());
}

void SamplingCandidates::AddBias() {
  if (input_.options.logit_bias.empty()) return;
  const std::span<float> logits = MutableLogits();
  for (const auto& [id, bias] : input_.options.logit_bias) {
    const int32_t index = IndexOfId(id);
    if (index >= 0) logits[index] = Tamed(logits[index] + bias);
  }
}

void SamplingCandidates::Mask(std::span<const int32_t> forbidden) {
  if (forbidden.empty()) return;
  const std::span<float> logits = MutableLogits();
  for (const int32_t id : forbidden) {
    const int32_t index = IndexOfId(id);
    if (index >= 0) logits[index] = -kInfinity;
  }
}

void SamplingCandidates::Penalize() {
  if (!HasPenalties(input_.options)) return;
  if (input_.history.entries().empty()) return;
  const std::span<float> logits = MutableLogits();
  for (const TokenHistory::Entry& entry : input_.history.entries()) {
    const int32_t index = IndexOfId(entry.id);
    if (index < 0 || logits[index] == -kInfinity) continue;
    logits[index] = Penalized(logits[index], entry, input_.options);
  }
}

void SamplingCandidates::KeepTopK(int32_t k) {
  if (static_cast<size_t>(k) >= logits_.size()) return;
  const std::span<LogitKey> keys = scratch_.keys;
  const int32_t count = SelectHighest(logits_, k, keys);
  if (count == 0) return;
  KeepFrom(*std::min_element(keys.begin(), keys.begin() + count));
}

void SamplingCandidates::Weigh(float highest, float scale) {
  highest_ = highest;
  scale_ = scale;
  weights_ = std::span(scratch_.weights).first(logits_.size());
  WeighLogits(logits_, highest, scale, weights_);
}

void SamplingCandidates::KeepTopP(double top_p) {
  const double total = SumWeights(weights_);
  const double target = top_p * total;
  // Candidates below this weight hardly add up to the 1 - top_p that is to be
  // dropped, so those above suffice. The bound need only be good: whether they
  // do is checked below, and if not, all are taken.
  const double bound =
      (1 - top_p) * total / static_cast<double>(weights_.size());
  const double logit = highest_ + std::log(bound) / scale_;
  float least = std::max(static_cast<float>(logit), -kHighestFinite);
  int32_t count = GatherKeys(least);
  double sum = 0;
  for (int32_t i = 0; i < count; ++i) {
    sum += weights_[IndexOf(scratch_.keys[i])];
  }
  if (!(sum >= target)) count = GatherKeys(-kHighestFinite);
  KeepFrom(
      SelectByWeight(std::span(scratch_.keys).first(count), weights_, target));
}

void SamplingCandidates::KeepMinP(float min_p) {
  int32_t size = 0;
  ForEachAtLeast(weights_, min_p, [&](int32_t index) { Move(index, size++); });
  Shorten(size);
}

int32_t SamplingCandidates::Draw(double u) const {
  constexpr size_t kBlock = 256;
  const double target = u * SumWeights(weights_);
  double sum = 0;
  size_t index = 0;
  for (; index + kBlock <= weights_.size(); index += kBlock) {
    const double with_block = sum + SumWeights(weights_.subspan(index, kBlock));
    if (with_block > target) break;
    sum = with_block;
  }
  for (; index < weights_.size(); ++index) {
    sum += weights_[index];
    if (sum > target) return IdAt(static_cast<int32_t>(index));
  }
  // Only where sums are not exact, beyond 2^19 ids.
  return IdAt(static_cast<int32_t>(
      std::max_element(weights_.begin(), weights_.end()) - weights_.begin()));
}

int32_t SamplingCandidates::IndexOfId(int32_t id) const {
  if (input_.options.allowed_token_ids.empty()) {
    return id >= 0 && static_cast<size_t>(id) < logits_.size() ? id : -1;
  }
  const auto found = std::lower_bound(ids_.begin(), ids_.end(), id);
  if (found == ids_.end() || *found != id) return -1;
  return static_cast<int32_t>(found - ids_.begin());
}

std::span<float> SamplingCandidates::MutableLogits() {
  const std::span<float> own = std::span(scratch_.logits).first(logits_.size());
  if (logits_.data() != own.data()) {
    std::copy(logits_.begin(), logits_.end(), own.begin());
    logits_ = own;
  }
  return own;
}

int32_t SamplingCandidates::GatherKeys(float least) {
  int32_t count = 0;
  ForEachAtLeast(logits_, least, [&](int32_t index) {
    scratch_.keys[count++] = KeyOf(logits_[index], index);
  });
  return count;
}

void SamplingCandidates::KeepFrom(LogitKey least) {
  const float least_logit = logits_[IndexOf(least)];
  int32_t size = 0;
  ForEachAtLeast(logits_, least_logit, [&](int32_t index) {
    if (KeyOf(logits_[index], index) >= least) Move(index, size++);
  });
  Shorten(size);
}

void SamplingCandidates::Move(int32_t from, int32_t to) {
  scratch_.ids[to] = IdAt(from);
  scratch_.logits[to] = logits_[from];
  if (!weights_.empty()) weights_[to] = weights_[from];
}

void SamplingCandidates::Shorten(int32_t size) {
  ids_ = std::span(scratch_.ids).first(size);
  logits_ = std::span(scratch_.logits).first(size);
  if (!weights_.empty()) weights_ = weights_.first(size);
}

}  // namespace flash
