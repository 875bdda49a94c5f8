// The most that this machine can do: what the figures of a model are fractions
// of. Measured with all threads, in the same run as the model.

#ifndef TESTS_BENCH_MACHINE_LIMITS_H_
#define TESTS_BENCH_MACHINE_LIMITS_H_

#include <cstddef>

#include "kernels/thread_pool.h"
#include "tests/bench/limit_loops.h"

namespace flash {

struct MachineLimits {
  double read_bandwidth_gbps = 0;  // 10^9 bytes a second
  double f32_peak_gflops = 0;
  double bf16_peak_gflops = 0;
};

// Reads a buffer of `bytes`, and multiplies and adds in registers, several
// times each; the best of them counts.
MachineLimits MeasureLimits(ThreadPool& pool, const LimitLoops& loops,
                            size_t bytes);

// The better of each.
MachineLimits Best(const MachineLimits& a, const MachineLimits& b);

}  // namespace flash

#endif  // TESTS_BENCH_MACHINE_LIMITS_H_
