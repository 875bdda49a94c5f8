// The loops over a vocabulary's logits that sampling and log-probabilities are
// made of. They run for every token of every request, so they take four logits
// side by side (lanes.h).

#ifndef SERVER_MODEL_LOGIT_LOOPS_H_
#define SERVER_MODEL_LOGIT_LOOPS_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <span>

#include "server/model/lanes.h"

namespace flash {

// How many elements a loop takes at a time: four times four. Sums have as many
// partial sums.
inline constexpr int kLogitLanes = 16;

struct LogitScan {
  float highest = -std::numeric_limits<float>::infinity();
  int32_t index = -1;    // the first that is the highest; -1: all are -infinity
  bool faulted = false;  // one is NaN or +infinity; the rest is then undefined
};
LogitScan ScanLogits(std::span<const float> logits);

// A number that orders entries of a list: higher logits have higher keys, and
// of equal ones the first. No two entries of a list have the same.
using LogitKey = uint64_t;

inline LogitKey KeyOf(float logit, int32_t index) {
  const auto bits = std::bit_cast<uint32_t>(logit + 0.0f);  // -0 is equal to 0
  const uint32_t ordered = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  return (uint64_t{ordered} << 32) | ~static_cast<uint32_t>(index);
}
inline int32_t IndexOf(LogitKey key) {
  return static_cast<int32_t>(~static_cast<uint32_t>(key));
}

// weights[i] = exp((logits[i] - highest) * scale), rounded to a multiple of
// 2^-34. REQUIRES: equal sizes; no NaN, no +infinity; `highest` is the highest
// and finite; scale >= 0 and finite.
void WeighLogits(std::span<const float> logits, float highest, float scale,
                 std::span<float> weights);

// The sum: of multiples of 2^-34 that are at most 1, it is exact up to 2^19 of
// them, so their order does not matter.
double SumWeights(std::span<const float> weights);

// The sum of the weights whose logits are at least this, and how many they are.
struct WeightSum {
  double sum = 0;
  int32_t count = 0;
};
WeightSum SumWeightsFrom(std::span<const float> logits,
                         std::span<const float> weights, float least);

// Sets the weights of the entries that are less than `least` to 0: by their
// keys (see KeyOf), and by their weights.
void DropBefore(LogitKey least, std::span<const float> logits,
                std::span<float> weights);
void DropBelow(float least, std::span<float> weights);

// The sum of exp(logits[i] - highest), without rounding, in kLogitLanes partial
// sums. REQUIRES: as WeighLogits.
double SumExponentials(std::span<const float> logits, float highest);

// How many are higher than logits[index], or equal and before it.
int32_t CountBefore(std::span<const float> logits, int32_t index);

// Writes the keys of the k highest entries, in no particular order, to the
// front of `keys`, and returns how many: fewer than k if fewer are above
// -infinity. REQUIRES: k >= 0; no NaN; `keys` has NumSelectKeys() entries.
int32_t SelectHighest(std::span<const float> logits, int32_t k,
                      std::span<LogitKey> keys);

// How much room SelectHighest() needs among `size` entries.
constexpr int32_t NumSelectKeys(size_t size, int32_t k) {
  return static_cast<int32_t>(std::min(
      static_cast<int64_t>(size), std::max<int64_t>(int64_t{4} * k, 1024)));
}

// Calls visit(i), in ascending order, for every i with values[i] in
// [least, above). `visit` may raise `least`. Blocks that have none cost a
// fraction.
template <typename Visit>
void ForEachInRange(std::span<const float> values, const float& least,
                    float above, const Visit& visit) {
  const auto size = static_cast<int32_t>(values.size());
  int32_t i = 0;
  for (; i + kLogitLanes <= size; i += kLogitLanes) {
    Int4 in_range = {};
    for (int v = 0; v < kLogitLanes; v += 4) {
      const Float4 lanes = LoadFloat4(&values[i + v]);
      in_range |= (lanes >= least) & (lanes < above);
    }
    if (!AnyOf(in_range)) continue;
    for (int32_t at = i; at < i + kLogitLanes; ++at) {
      if (values[at] >= least && values[at] < above) visit(at);
    }
  }
  for (; i < size; ++i) {
    if (values[i] >= least && values[i] < above) visit(i);
  }
}

}  // namespace flash

#endif  // SERVER_MODEL_LOGIT_LOOPS_H_
