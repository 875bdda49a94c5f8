#include "server/model/logit_loops.h"

#include <algorithm>
#include <functional>

#include "server/model/exponential.h"
#include "server/model/lanes.h"

namespace flash {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kHighestFinite = std::numeric_limits<float>::max();

// Elements among which ScanLogits() looks for the index in the end.
constexpr size_t kScanBlock = 1024;

constexpr int kVectors = kLogitLanes / 4;

size_t WholeBlocks(size_t size) { return size - size % kLogitLanes; }

struct BlockScan {
  float highest;
  bool faulted;
};

BlockScan ScanBlock(std::span<const float> block) {
  Float4 highest[kVectors];
  std::fill_n(highest, kVectors, Splat(-kInfinity));
  Int4 finite = {-1, -1, -1, -1};
  const size_t whole = WholeBlocks(block.size());
  for (size_t i = 0; i < whole; i += kLogitLanes) {
    for (int v = 0; v < kVectors; ++v) {
      const Float4 logits = LoadFloat4(&block[i + 4 * v]);
      highest[v] = logits > highest[v] ? logits : highest[v];
      finite &= logits <= kHighestFinite;  // or -infinity
    }
  }
  BlockScan scan = {-kInfinity, AnyOf(~finite)};
  for (const Float4& lanes : highest) {
    for (int i = 0; i < 4; ++i) scan.highest = std::max(scan.highest, lanes[i]);
  }
  for (const float logit : block.subspan(whole)) {
    scan.highest = std::max(scan.highest, logit);
    scan.faulted |= !(logit <= kHighestFinite);
  }
  return scan;
}

// Sixteen partial sums, added as a tree: a fixed expression.
class LaneSum {
 public:
  void Add(Float4 terms, int vector) {
    lanes_[vector] += __builtin_convertvector(terms, Double4);
  }
  void AddOne(float term, size_t lane) { lanes_[lane / 4][lane % 4] += term; }

  double Total() const {
    const Double4 sum = (lanes_[0] + lanes_[1]) + (lanes_[2] + lanes_[3]);
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
  }

 private:
  Double4 lanes_[kVectors] = {};
};

// For float and Float4.
template <typename Float>
Float WeightOf(Float logit, float highest, float scale) {
  // At -25 the weight rounds to 0; also for the NaN of 0 times infinity.
  const Float least = Float{} - 25.0f;
  Float x = (logit - highest) * scale;
  x = x > least ? x : least;
  const Float weight = ExpOfNonPositive(x);
  // Below 2^-11 a float has bits under 2^-34; adding 2^-11 rounds them away.
  constexpr float kShift = 0x1p-11f;
  const Float rounded = (weight + kShift) - kShift;
  return weight < kShift ? rounded : weight;
}

// weights[i] = kept(values[i]) ? weights[i] : 0
template <typename Kept>
void DropUnless(const Kept& kept, std::span<const float> values,
                std::span<float> weights) {
  const size_t whole = values.size() - values.size() % 4;
  for (size_t i = 0; i < whole; i += 4) {
    const Float4 lanes = LoadFloat4(&weights[i]);
    Store(kept(LoadFloat4(&values[i])) ? lanes : Float4{}, &weights[i]);
  }
  for (size_t i = whole; i < values.size(); ++i) {
    if (!kept(values[i])) weights[i] = 0;
  }
}

template <typename Float>
Float ExponentialOf(Float logit, float highest) {
  // exp(-80) of a whole vocabulary is nothing beside the highest one's 1.
  const Float least = Float{} - 80.0f;
  const Float x = logit - highest;
  return ExpOfNonPositive(x > least ? x : least);
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
  const size_t whole = WholeBlocks(logits.size());
  for (size_t i = 0; i < whole; i += 4) {
    Store(WeightOf(LoadFloat4(&logits[i]), highest, scale), &weights[i]);
  }
  for (size_t i = whole; i < logits.size(); ++i) {
    weights[i] = WeightOf(logits[i], highest, scale);
  }
}

double SumWeights(std::span<const float> weights) {
  LaneSum sum;
  const size_t whole = WholeBlocks(weights.size());
  for (size_t i = 0; i < whole; i += kLogitLanes) {
    for (int v = 0; v < kVectors; ++v) {
      sum.Add(LoadFloat4(&weights[i + 4 * v]), v);
    }
  }
  for (size_t i = whole; i < weights.size(); ++i) {
    sum.AddOne(weights[i], i - whole);
  }
  return sum.Total();
}

WeightSum SumWeightsFrom(std::span<const float> logits,
                         std::span<const float> weights, float least) {
  LaneSum sum;
  Int4 count = {};
  const size_t whole = WholeBlocks(logits.size());
  for (size_t i = 0; i < whole; i += kLogitLanes) {
    for (int v = 0; v < kVectors; ++v) {
      const size_t at = i + 4 * v;
      const Int4 counts_in = LoadFloat4(&logits[at]) >= least;
      sum.Add(counts_in ? LoadFloat4(&weights[at]) : Float4{}, v);
      count -= counts_in;  // a mask is -1
    }
  }
  int32_t tail = 0;
  for (size_t i = whole; i < logits.size(); ++i) {
    if (!(logits[i] >= least)) continue;
    sum.AddOne(weights[i], i - whole);
    ++tail;
  }
  return {sum.Total(), count[0] + count[1] + count[2] + count[3] + tail};
}

void DropBefore(LogitKey least, std::span<const float> logits,
                std::span<float> weights) {
  const size_t end = static_cast<size_t>(IndexOf(least)) + 1;
  const float logit = logits[end - 1];
  DropUnless([logit](auto values) { return values >= logit; },
             logits.first(end), weights.first(end));
  DropUnless([logit](auto values) { return values > logit; },
             logits.subspan(end), weights.subspan(end));
}

void DropBelow(float least, std::span<float> weights) {
  DropUnless([least](auto values) { return values >= least; }, weights,
             weights);
}

double SumExponentials(std::span<const float> logits, float highest) {
  LaneSum sum;
  const size_t whole = WholeBlocks(logits.size());
  for (size_t i = 0; i < whole; i += kLogitLanes) {
    for (int v = 0; v < kVectors; ++v) {
      sum.Add(ExponentialOf(LoadFloat4(&logits[i + 4 * v]), highest), v);
    }
  }
  for (size_t i = whole; i < logits.size(); ++i) {
    sum.AddOne(ExponentialOf(logits[i], highest), i - whole);
  }
  return sum.Total();
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
  ForEachInRange(logits, least, kInfinity, [&](int32_t index) {
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
