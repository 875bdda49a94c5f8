// The most that this machine can do: what the figures of a model are fractions
// of.

#ifndef TESTS_BENCH_MACHINE_LIMITS_H_
#define TESTS_BENCH_MACHINE_LIMITS_H_

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/thread_pool.h"
#include "tests/bench/limit_loops.h"

namespace flash {

struct MachineLimits {
  double read_bandwidth_gbps = 0;  // 10^9 bytes a second
  double f32_peak_gflops = 0;
  double bf16_peak_gflops = 0;
};

// Measures with all threads, a pass at a time, so that the passes can take
// turns with what is compared with them: machines that others use too are twice
// as fast in one minute as in the next.
class LimitMeter {
 public:
  // Reads a buffer of `bytes` of the backend's memory. All are borrowed.
  LimitMeter(Backend& backend, ThreadPool& pool, const LimitLoops& loops,
             size_t bytes);

  void Read();
  void MultiplyAndAdd();

  // The medians of the passes so far. REQUIRES: there was one of each.
  MachineLimits limits() const;
  // Of the passes of Read() from `first` on.
  double ReadBandwidth(size_t first) const;
  size_t num_reads() const { return read_gbps_.size(); }
  // p99.9 of the times of the passes from `first` on, by their median: what the
  // machine does to a loop whose work never changes.
  double ReadTail(size_t first) const;

 private:
  double PeakOf(float (*loop)(const float*, int64_t), int64_t operations);

  ThreadPool& pool_;
  const LimitLoops& loops_;
  std::unique_ptr<Buffer> memory_;
  std::span<float> data_;
  std::vector<float> results_;  // so that the work is not left out
  std::vector<double> read_gbps_;
  std::vector<double> f32_gflops_;
  std::vector<double> bf16_gflops_;
};

}  // namespace flash

#endif  // TESTS_BENCH_MACHINE_LIMITS_H_
