#include "tests/bench/machine_limits.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "kernels/check.h"

namespace flash {

namespace cpu {
namespace avx512bf16 {
extern const LimitLoops kLimitLoops;
}
namespace avx512 {
extern const LimitLoops kLimitLoops;
}
namespace avx2 {
extern const LimitLoops kLimitLoops;
}
namespace portable {
extern const LimitLoops kLimitLoops;
}
}  // namespace cpu

namespace {

constexpr int kPasses = 8;
constexpr int kTasks = 64;
constexpr int64_t kRounds = 1'000'000;

double SecondsOf(const auto& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

double LeastSecondsOf(const auto& work) {
  double least = SecondsOf(work);
  for (int pass = 1; pass < kPasses; ++pass) {
    least = std::min(least, SecondsOf(work));
  }
  return least;
}

}  // namespace

const LimitLoops& FindLimitLoops(const std::string& description) {
  for (const LimitLoops* loops :
       {&cpu::avx512bf16::kLimitLoops, &cpu::avx512::kLimitLoops,
        &cpu::avx2::kLimitLoops, &cpu::portable::kLimitLoops}) {
    const std::string prefix = std::string("cpu ") + loops->name + ",";
    if (description.compare(0, prefix.size(), prefix) == 0) return *loops;
  }
  FLASH_CHECK(false && "a backend without limits");
  return cpu::portable::kLimitLoops;
}

MachineLimits MeasureLimits(ThreadPool& pool, const LimitLoops& loops,
                            size_t bytes) {
  const int64_t piece =
      static_cast<int64_t>(bytes / sizeof(float) / kTasks) / 256 * 256;
  FLASH_CHECK(piece > 0);
  std::vector<float> data(piece * kTasks, 1.0f);
  std::vector<float> results(kTasks);  // so that the work is not left out
  const double read = LeastSecondsOf([&] {
    pool.ParallelFor(kTasks, [&](int task, int) {
      results[task] = loops.read(data.data() + task * piece, piece);
    });
  });
  const std::vector<float> seeds(64, 0.0f);
  const int threads = pool.num_threads();
  const auto peak = [&](auto loop, int64_t operations) {
    const double seconds = LeastSecondsOf([&] {
      pool.ParallelFor(threads, [&](int task, int) {
        results[task % kTasks] = loop(seeds.data(), kRounds);
      });
    });
    return static_cast<double>(operations * kRounds * threads) / seconds * 1e-9;
  };
  return {
      .read_bandwidth_gbps =
          static_cast<double>(data.size() * sizeof(float)) / read * 1e-9,
      .f32_peak_gflops = peak(loops.multiply_add, loops.operations),
      .bf16_peak_gflops = peak(loops.pair_multiply_add, loops.pair_operations)};
}

MachineLimits Best(const MachineLimits& a, const MachineLimits& b) {
  return {std::max(a.read_bandwidth_gbps, b.read_bandwidth_gbps),
          std::max(a.f32_peak_gflops, b.f32_peak_gflops),
          std::max(a.bf16_peak_gflops, b.bf16_peak_gflops)};
}

}  // namespace flash
