#include "server/model/sampling_candidates.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace flash {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kHighestFinite = std::numeric_limits<float>::max();

// top_p's search: among so few keys a selection costs less than a pass over all
// logits, and logits that so many bisections cannot tell apart are equal.
constexpr int32_t kFewKeys = 512;
constexpr int kMaxPasses = 24;

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
  // Unlikely without end is not forbidden: only a mask is -infinity.
  return std::max(Tamed(logit), std::numeric_limits<float>::lowest());
}

// The lowest key of the shortest run of the highest keys whose weights add up
// to `target`, `sum` being that of higher keys that are not among `keys`.
// Halves the part that is in question until one key is left; as sums are exact,
// the order in which they are added does not matter. REQUIRES: a key.
LogitKey SelectByWeight(std::span<LogitKey> keys,
                        std::span<const float> weights, double sum,
                        double target) {
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
  // The list is written anew, in place: an entry never moves backwards.
  const LogitKey least = *std::min_element(keys.begin(), keys.begin() + count);
  const float least_logit = logits_[IndexOf(least)];
  int32_t size = 0;
  ForEachInRange(logits_, least_logit, kInfinity, [&](int32_t index) {
    if (KeyOf(logits_[index], index) < least) return;
    scratch_.ids[size] = IdAt(index);
    scratch_.logits[size++] = logits_[index];
  });
  ids_ = std::span(scratch_.ids).first(size);
  logits_ = std::span(scratch_.logits).first(size);
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
  // The run that is kept ends between two logits: it has all from `above` up,
  // and nothing under `least`. Weights are 0 from 25 temperatures down.
  float least =
      std::max(static_cast<float>(highest_ - 26.0 / scale_), -kHighestFinite);
  float above = kInfinity;
  WeightSum from_least = {total, static_cast<int32_t>(weights_.size())};
  WeightSum from_above;
  // Bisection in passes that are vector code, until a selection is cheap.
  for (int pass = 0; pass < kMaxPasses; ++pass) {
    if (from_least.count - from_above.count <= kFewKeys) break;
    const float middle = least / 2 + std::min(above, highest_) / 2;
    const WeightSum from_middle = SumWeightsFrom(logits_, weights_, middle);
    if (from_middle.sum >= target) {
      least = middle;
      from_least = from_middle;
    } else {
      above = middle;
      from_above = from_middle;
    }
  }
  const std::span<LogitKey> keys = GatherKeys(least, above);
  DropBefore(SelectByWeight(keys, weights_, from_above.sum, target), logits_,
             weights_);
}

void SamplingCandidates::KeepMinP(float min_p) { DropBelow(min_p, weights_); }

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

std::span<LogitKey> SamplingCandidates::GatherKeys(float least, float above) {
  int32_t count = 0;
  ForEachInRange(logits_, least, above, [&](int32_t index) {
    scratch_.keys[count++] = KeyOf(logits_[index], index);
  });
  return std::span(scratch_.keys).first(count);
}

}  // namespace flash
