// The loops over a vocabulary's logits that sampling and log-probabilities are
// made of. They run once per token of every request, so they are written in
// blocks of a fixed width that compilers turn into vector code.

#ifndef SERVER_MODEL_LOGIT_LOOPS_H_
#define SERVER_MODEL_LOGIT_LOOPS_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <span>

namespace flash {

// How many elements a loop takes at a time; sums have as many partial sums.
inline constexpr int kLogitLanes = 16;

struct LogitScan {
  float highest = -std::numeric_limits<float>::infinity();
  int32_t index = -1;    // the first that is the highest; -1: all are -infinity
  bool faulted = false;  // one is NaN or +infinity; the rest is then undefined
};
LogitScan ScanLogits(std::span<const float> logits);

// weights[i] = exp((logits[i] - highest) * scale), rounded to a multiple of
// 2^-34. REQUIRES: equal sizes; no NaN, no +infinity; `highest` is the highest
// and finite; scale >= 0 and finite.
void WeighLogits(std::span<const float> logits, float highest, float scale,
                 std::span<float> weights);

// The sum: of multiples of 2^-34 that are at most 1, it is exact up to 2^19 of
// them, so their order does not matter.
double SumWeights(std::span<const float> weights);

// The sum of exp(logits[i] - highest), without rounding, in kLogitLanes partial
// sums. REQUIRES: as WeighLogits.
double SumExponentials(std::span<const float> logits, float highest);

// How many are higher than logits[index], or equal and before it.
int32_t CountBefore(std::span<const float> logits, int32_t index);

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

// Calls visit(i), in ascending order, for every i with values[i] >= least.
// `visit` may raise `least`. Blocks that have none cost a fraction.
template <typename Visit>
void ForEachAtLeast(std::span<const float> values, const float& least,
                    const Visit& visit) {
  const auto size = static_cast<int32_t>(values.size());
  int32_t i = 0;
  for (; i + kLogitLanes <= size; i += kLogitLanes) {
    const float* block = values.data() + i;
    const float bound = least;
    int32_t any = 0;
    for (int lane = 0; lane < kLogitLanes; ++lane) any |= block[lane] >= bound;
    if (any == 0) continue;
    for (int lane = 0; lane < kLogitLanes; ++lane) {
      if (block[lane] >= least) visit(i + lane);
    }
  }
  for (; i < size; ++i) {
    if (values[i] >= least) visit(i);
  }
}

}  // namespace flash

#endif  // SERVER_MODEL_LOGIT_LOOPS_H_
