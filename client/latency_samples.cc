#include "client/latency_samples.h"

#include <algorithm>
#include <cmath>

namespace flash {
namespace {

double NearestRank(const std::vector<double>& sorted, double percent) {
  // 99.9 % of 1000 is 999, and not the 999.0000000000001 of floating point.
  constexpr double kRounding = 1e-9;
  const double rank =
      std::ceil(percent * static_cast<double>(sorted.size()) / 100 - kRounding);
  const size_t index = rank < 1 ? 0 : static_cast<size_t>(rank) - 1;
  return sorted[std::min(index, sorted.size() - 1)];
}

}  // namespace

void LatencySamples::Add(double value) {
  ++count_;
  sum_ += value;
  max_ = count_ == 1 ? value : std::max(max_, value);
  if (samples_.size() < max_samples_) {
    samples_.push_back(value);
    return;
  }
  std::uniform_int_distribution<int64_t> place(0, count_ - 1);
  const auto index = static_cast<size_t>(place(random_));
  if (index < samples_.size()) samples_[index] = value;
}

void LatencySamples::Add(const LatencySamples& other) {
  for (const double value : other.samples_) Add(value);
}

LatencySummary LatencySamples::Summarize() const {
  if (count_ == 0) return {};
  std::vector<double> sorted = samples_;
  std::sort(sorted.begin(), sorted.end());
  return {.count = count_,
          .mean = sum_ / static_cast<double>(count_),
          .p50 = NearestRank(sorted, 50),
          .p90 = NearestRank(sorted, 90),
          .p99 = NearestRank(sorted, 99),
          .p99_9 = NearestRank(sorted, 99.9),
          .max = max_};
}

}  // namespace flash
