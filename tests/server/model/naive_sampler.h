// Sampling as sampling.h defines it, stage by stage over whole sorted lists:
// what the fast one must agree with to the last token.

#ifndef TESTS_SERVER_MODEL_NAIVE_SAMPLER_H_
#define TESTS_SERVER_MODEL_NAIVE_SAMPLER_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "server/model/exponential.h"
#include "server/model/sampling.h"

namespace flash {

struct NaiveCandidate {
  int32_t id = 0;
  float logit = 0;
  double weight = 0;
};

inline bool IsHigher(const NaiveCandidate& a, const NaiveCandidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

inline float NaivePenalized(float logit, const SampleInput& input, int32_t id) {
  for (const TokenHistory::Entry& entry : input.history.entries()) {
    if (entry.id != id) continue;
    const float penalty = input.options.repetition_penalty;
    logit = logit > 0 ? logit / penalty : logit * penalty;
    if (entry.in_output == 0) continue;
    logit -= input.options.presence_penalty;
    logit -=
        input.options.frequency_penalty * static_cast<float>(entry.in_output);
  }
  return logit;
}

// Stages 1 and 2: everything that is not masked, highest first.
inline std::vector<NaiveCandidate> NaiveCandidates(const SampleInput& input) {
  const SamplingOptions& options = input.options;
  const std::vector<int32_t>& allowed = options.allowed_token_ids;
  std::vector<NaiveCandidate> candidates;
  for (int32_t id = 0; id < static_cast<int32_t>(input.logits.size()); ++id) {
    if (id >= input.num_pieces) continue;
    if (!allowed.empty() &&
        std::count(allowed.begin(), allowed.end(), id) == 0) {
      continue;
    }
    if (std::count(input.forbidden.begin(), input.forbidden.end(), id) > 0) {
      continue;
    }
    float logit = input.logits[id];
    const auto bias = options.logit_bias.find(id);
    if (bias != options.logit_bias.end()) logit += bias->second;
    logit = NaivePenalized(logit, input, id);
    if (std::isinf(logit)) continue;
    candidates.push_back({id, logit, 0});
  }
  std::sort(candidates.begin(), candidates.end(), IsHigher);
  return candidates;
}

inline double NaiveSum(const std::vector<NaiveCandidate>& candidates) {
  double sum = 0;
  for (const NaiveCandidate& candidate : candidates) sum += candidate.weight;
  return sum;
}

// Stages 3 to 6.
inline void NaiveNarrow(const SamplingOptions& options,
                        std::vector<NaiveCandidate>& candidates) {
  if (options.top_k > 0 && candidates.size() > size_t(options.top_k)) {
    candidates.resize(options.top_k);
  }
  const float highest = candidates.front().logit;
  const float scale = 1 / options.temperature;
  for (NaiveCandidate& candidate : candidates) {
    const float x = (candidate.logit - highest) * scale;
    const double weight = x < -30 ? 0.0 : double{ExpOfNonPositive(x)};
    candidate.weight = std::nearbyint(weight * 0x1p34) * 0x1p-34;
  }
  if (options.top_p < 1) {
    const double target = double{options.top_p} * NaiveSum(candidates);
    double sum = 0;
    size_t size = 0;
    while (size < candidates.size()) {
      sum += candidates[size++].weight;
      if (sum >= target) break;
    }
    candidates.resize(size);
  }
  std::erase_if(candidates, [&](const NaiveCandidate& candidate) {
    return candidate.weight < options.min_p;
  });
}

// The candidates that can be drawn, in ascending order of ids.
inline std::vector<NaiveCandidate> NaiveDistribution(const SampleInput& input) {
  std::vector<NaiveCandidate> candidates = NaiveCandidates(input);
  if (!candidates.empty()) NaiveNarrow(input.options, candidates);
  std::sort(candidates.begin(), candidates.end(),
            [](const auto& a, const auto& b) { return a.id < b.id; });
  return candidates;
}

// The token, or nothing if none is allowed.
inline std::optional<int32_t> NaiveSample(const SampleInput& input) {
  if (input.options.temperature == 0) {
    const std::vector<NaiveCandidate> candidates = NaiveCandidates(input);
    if (candidates.empty()) return std::nullopt;
    return candidates.front().id;
  }
  const std::vector<NaiveCandidate> candidates = NaiveDistribution(input);
  const double target = UniformRandom(input.draw) * NaiveSum(candidates);
  double sum = 0;
  for (const NaiveCandidate& candidate : candidates) {
    sum += candidate.weight;
    if (sum > target) return candidate.id;
  }
  return std::nullopt;
}

}  // namespace flash

#endif  // TESTS_SERVER_MODEL_NAIVE_SAMPLER_H_
