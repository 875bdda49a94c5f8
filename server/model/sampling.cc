#include "server/model/sampling.h"

#include <algorithm>
#include <limits>

#include "absl/status/status.h"
#include "kernels/check.h"
#include "server/model/philox.h"
#include "server/model/sampling_candidates.h"

namespace flash {

bool HasPenalties(const SamplingOptions& options) {
  return options.penalty_window > 0 &&
         (options.repetition_penalty != 1 || options.presence_penalty != 0 ||
          options.frequency_penalty != 0);
}

double UniformRandom(const Draw& draw) {
  const PhiloxCounter random = Philox4x32(
      {static_cast<uint32_t>(draw.position),
       static_cast<uint32_t>(draw.position >> 32), draw.output_index, 0},
      {static_cast<uint32_t>(draw.seed),
       static_cast<uint32_t>(draw.seed >> 32)});
  const uint64_t bits = (uint64_t{random[1]} << 32) | random[0];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

SamplingScratch::SamplingScratch(int32_t vocab_size)
    : logits(vocab_size),
      weights(vocab_size),
      ids(vocab_size),
      keys(vocab_size) {}

absl::StatusOr<int32_t> SampleToken(const SampleInput& input,
                                    SamplingScratch& scratch) {
  FLASH_CHECK(input.logits.size() <= scratch.logits.size());
  const SamplingOptions& options = input.options;
  const LogitScan raw = ScanLogits(input.logits);
  if (raw.faulted) return absl::InternalError("a logit is not a finite number");

  SamplingCandidates candidates(input, scratch);
  candidates.AddBias();
  candidates.Mask(input.forbidden);
  candidates.Penalize();
  const LogitScan scan = candidates.HasAllLogitsRaw() ? raw : candidates.Scan();
  if (scan.index < 0) {
    return absl::InvalidArgumentError("no token is allowed");
  }
  if (!(options.temperature > 0)) return candidates.IdAt(scan.index);

  if (options.top_k > 0) candidates.KeepTopK(options.top_k);
  // The reciprocal of anything smaller would not be finite.
  const float temperature =
      std::max(options.temperature, std::numeric_limits<float>::min());
  candidates.Weigh(scan.highest, 1 / temperature);
  if (options.top_p < 1) candidates.KeepTopP(std::max(options.top_p, 0.0f));
  if (options.min_p > 0) candidates.KeepMinP(std::min(options.min_p, 1.0f));
  return candidates.Draw(UniformRandom(input.draw));
}

}  // namespace flash
