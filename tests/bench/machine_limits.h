// The most that a device can do: what the figures of a model are fractions of.

#ifndef TESTS_BENCH_MACHINE_LIMITS_H_
#define TESTS_BENCH_MACHINE_LIMITS_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/backend.h"
#include "kernels/thread_pool.h"

namespace flash {

struct PeakGflops {
  double float32 = 0;
  double bfloat16 = 0;
};

// Measures a pass at a time, so that the passes can take turns with what is
// compared with them: machines that others use too are twice as fast in one
// minute as in the next.
class LimitMeter {
 public:
  virtual ~LimitMeter() = default;

  // A pass over memory.
  void Read() { gbps_.push_back(MeasureBandwidth()); }
  // A pass of products, if there are limits of these.
  void MultiplyAndAdd();

  size_t num_reads() const { return gbps_.size(); }
  // The median of the passes from `first` on, in 10^9 bytes a second. REQUIRES:
  // there was one.
  double ReadBandwidth(size_t first) const;
  // p99.9 of the times of the passes from `first` on, by their median: what the
  // machine does to a loop whose work never changes.
  double ReadTail(size_t first) const;
  // The median of the passes; none where there were none.
  std::optional<PeakGflops> Peak() const;

 private:
  virtual double MeasureBandwidth() = 0;
  virtual std::optional<PeakGflops> MeasurePeak() = 0;

  std::vector<double> gbps_;
  std::vector<double> float32_gflops_;
  std::vector<double> bfloat16_gflops_;
};

// The processor's, with all threads: loops that only read a buffer of `bytes`
// of the backend's memory, and loops that only multiply and add, both of the
// instruction set that the backend uses. All are borrowed.
std::unique_ptr<LimitMeter> MakeProcessorLimits(Backend& backend,
                                                ThreadPool& pool, size_t bytes);

// A card's: the backend copies `bytes` of its memory to another place there,
// and what is read and what is written both count. What its products can do at
// most is not measured.
std::unique_ptr<LimitMeter> MakeCardLimits(Backend& backend, size_t bytes);

}  // namespace flash

#endif  // TESTS_BENCH_MACHINE_LIMITS_H_
