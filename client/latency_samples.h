// Times that were measured, and what can be said of many of them.

#ifndef CLIENT_LATENCY_SAMPLES_H_
#define CLIENT_LATENCY_SAMPLES_H_

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace flash {

struct LatencySummary {
  int64_t count = 0;
  double mean = 0;
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  double p99_9 = 0;
  double max = 0;
};

// Keeps the times themselves, so percentiles are exact, up to a bound; beyond
// that it keeps a uniform choice of them (Vitter's algorithm R). Count, mean
// and maximum are always exact.
//
// Thread safety: one thread at a time.
class LatencySamples {
 public:
  explicit LatencySamples(size_t max_samples = size_t{1} << 20)
      : max_samples_(max_samples) {}

  void Add(double value);

  // Adds all of `other`, which kept all of its times.
  // REQUIRES: other.count() <= the bound of `other`, for an exact result.
  void Add(const LatencySamples& other);

  int64_t count() const { return count_; }

  // Percentiles are nearest ranks: the least time that at least p % of them do
  // not exceed. All zero if there are none.
  LatencySummary Summarize() const;

 private:
  const size_t max_samples_;
  std::vector<double> samples_;
  int64_t count_ = 0;
  double sum_ = 0;
  double max_ = 0;
  std::mt19937_64 random_{1};
};

}  // namespace flash

#endif  // CLIENT_LATENCY_SAMPLES_H_
