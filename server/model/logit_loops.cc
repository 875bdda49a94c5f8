#include "server/model/logit_loops.h"

#include <algorithm>
#include <functional>

#include "server/model/exponential.h"

namespace flash {
namespace {

constexpr float kHighestFinite = std::numeric_limits<float>::max();

// Elements among which ScanLogits() looks for the index in the end.
constexpr size_t kScanBlock = 1024;

struct BlockScan {
  float highest;
  bool faulted;
};

BlockScan ScanBlock(std::span<const float> block) {
  float highest[kLogitLanes];
  int32_t faulted[kLogitLanes] = {};
  std::fill_n(highest, kLogitLanes, -std::numeric_limits<float>::infinity());
  const size_t whole = block.size() - block.size() % kLogitLanes;
  for (size_t i = 0; i < whole; i += kLogitLanes) {
    for (int lane = 0; lane < kLogitLanes; ++lane) {
      const float logit = block[i + lane];
      highest[lane] = logit > highest[lane] ? logit : highest[lane];
      faulted[lane] |= !(logit <= kHighestFinite);
    }
  }
  for (size_t i = whole; i < block.size(); ++i) {
    highest[0] = block[i] > highest[0] ? block[i] : highest[0];
    faulted[0] |= !(block[i] <= kHighestFinite);
  }
  return {*std::max_element(highest, highest + kLogitLanes),
          std::any_of(faulted, faulted + kLogitLanes,
                      [](int32_t flag) { return flag != 0; })};
}

// One partial sum for each lane, added as a tree: a fixed expression.
double SumOfLanes(double* lanes) {
  for (int width = kLogitLanes / 2; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

float WeightOf(float logit, float highest, float scale) {
  // At -25 the weight rounds to 0; also for what NaN 0 * infinity gives.
  const float x = (logit - highest) * scale;
  const float weight = ExpOfNonPositive(x > -25.0f ? x : -25.0f);
  // Below 2^-11 a float has bits under 2^-34; adding 2^-11 rounds them away.
  constexpr float kShift = 0x1p-11f;
  const float rounded = (weight + kShift) - kShift;
  return weight < kShift ? rounded : weight;
}

float ExponentialOf(float logit, float highest) {
  // exp(-80) of a whole vocabulary is nothing beside the highest one's 1.
  const float x = logit - highest;
  return ExpOfNonPositive(x > -80.0f ? x : -80.0f);
}

}  // namespace

LogitScan ScanLogits(std::span<const float> logits) {
  LogitScan scan;
  size_t best_block = 0;
  for (size_t i = 0; i < logits.size(); i += kScanBlock) {
    const size_t size = std::min(kScanBlock, logits.size() - i);
    const BlockScan block = ScanBlock(logits.subspan(i, size));
    scan.faulted |= block.faulted;
    if (block.highest > scan.highest) {
      scan.highest = block.highest;
      best_block = i;
    }
  }
  if (scan.highest < -kHighestFinite || scan.faulted) return scan;
  const auto first = logits.begin() + static_cast<ptrdiff_t>(best_block);
  const auto found = std::find(first, logits.end(), scan.highest);
  scan.index = static_cast<int32_t>(found - logits.begin());
  return scan;
}

void WeighLogits(std::span<const float> logits, float highest, float scale,
                 std::span<float> weights) {
  const size_t size = logits.size();
  const float* __restrict in = logits.data();
  float* __restrict out = weights.data();
  for (size_t i = 0; i < size; ++i) out[i] = WeightOf(in[i], highest, scale);
}

double SumWeights(std::span<const float> weights) {
  double lanes[kLogitLanes] = {};
  const size_t whole = weights.size() - weights.size() % kLogitLanes;
  for (size_t i = 0; i < whole; i += kLogitLanes) {
    for (int lane = 0; lane < kLogitLanes; ++lane) {
      lanes[lane] += static_cast<double>(weights[i + lane]);
    }
  }
  for (size_t i = whole; i < weights.size(); ++i) lanes[0] += weights[i];
  return SumOfLanes(lanes);
}

double SumExponentials(std::span<const float> logits, float highest) {
  double lanes[kLogitLanes] = {};
  const size_t whole = logits.size() - logits.size() % kLogitLanes;
  for (size_t i = 0; i < whole; i += kLogitLanes) {
    for (int lane = 0; lane < kLogitLanes; ++lane) {
      lanes[lane] +=
          static_cast<double>(ExponentialOf(logits[i + lane], highest));
    }
  }
  for (size_t i = whole; i < logits.size(); ++i) {
    lanes[i - whole] += ExponentialOf(logits[i], highest);
  }
  return SumOfLanes(lanes);
}

int32_t CountBefore(std::span<const float> logits, int32_t index) {
  const float logit = logits[index];
  int32_t count = 0;
  for (const float other : logits.first(index)) count += other >= logit;
  for (const float other : logits.subspan(index)) count += other > logit;
  return count;
}

int32_t SelectHighest(std::span<const float> logits, int32_t k,
                      std::span<LogitKey> keys) {
  if (k == 0) return 0;
  // Collects the entries that reach the k-th highest so far. When the keys
  // fill up, the k highest of them stay and the bar rises: constant time per
  // entry on average, in whatever order they come.
  const int32_t capacity = NumSelectKeys(logits.size(), k);
  const bool all_fit = static_cast<size_t>(capacity) == logits.size();
  float least = -kHighestFinite;
  int32_t count = 0;
  const auto keep_highest = [&] {
    std::nth_element(keys.begin(), keys.begin() + (k - 1), keys.begin() + count,
                     std::greater<>());
    count = k;
  };
  ForEachAtLeast(logits, least, [&](int32_t index) {
    keys[count++] = KeyOf(logits[index], index);
    if (count == capacity && !all_fit) {
      keep_highest();
      least = logits[IndexOf(keys[k - 1])];
    }
  });
  if (count > k) keep_highest();
  return count;
}

}  // namespace flash
