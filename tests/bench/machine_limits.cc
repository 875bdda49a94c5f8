#include "tests/bench/machine_limits.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "kernels/check.h"
#include "tests/bench/median.h"

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

constexpr int kTasks = 64;
constexpr int64_t kRounds = 500'000;

double SecondsOf(const auto& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
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

LimitMeter::LimitMeter(Backend& backend, ThreadPool& pool,
                       const LimitLoops& loops, size_t bytes)
    : pool_(pool),
      loops_(loops),
      results_(std::max(kTasks, pool.num_threads())) {
  constexpr size_t kUnit = kTasks * 256;
  const size_t size =
      std::max<size_t>(1, bytes / sizeof(float) / kUnit) * kUnit;
  auto memory = backend.Allocate(size * sizeof(float));
  FLASH_CHECK(memory.ok());
  memory_ = *std::move(memory);
  data_ = {reinterpret_cast<float*>(memory_->data()), size};
  std::fill(data_.begin(), data_.end(), 1.0f);  // pages of its own
}

void LimitMeter::Read() {
  const int64_t piece = static_cast<int64_t>(data_.size()) / kTasks;
  const double seconds = SecondsOf([&] {
    pool_.ParallelFor(kTasks, [&](int task, int) {
      results_[task] = loops_.read(data_.data() + task * piece, piece);
    });
  });
  read_gbps_.push_back(static_cast<double>(data_.size() * sizeof(float)) /
                       seconds * 1e-9);
}

double LimitMeter::PeakOf(float (*loop)(const float*, int64_t),
                          int64_t operations) {
  const std::vector<float> seeds(64, 0.0f);
  const int threads = pool_.num_threads();
  const double seconds = SecondsOf([&] {
    pool_.ParallelFor(threads, [&](int task, int) {
      results_[task] = loop(seeds.data(), kRounds);
    });
  });
  return static_cast<double>(operations * kRounds * threads) / seconds * 1e-9;
}

void LimitMeter::MultiplyAndAdd() {
  f32_gflops_.push_back(PeakOf(loops_.multiply_add, loops_.operations));
  bf16_gflops_.push_back(
      PeakOf(loops_.pair_multiply_add, loops_.pair_operations));
}

MachineLimits LimitMeter::limits() const {
  return {.read_bandwidth_gbps = Median(read_gbps_),
          .f32_peak_gflops = Median(f32_gflops_),
          .bf16_peak_gflops = Median(bf16_gflops_)};
}

double LimitMeter::ReadTail(size_t first) const {
  // The slowest take longest.
  std::vector<double> speeds(read_gbps_.begin() + first, read_gbps_.end());
  FLASH_CHECK(!speeds.empty());
  std::sort(speeds.begin(), speeds.end());
  return speeds[speeds.size() / 2] / speeds[speeds.size() / 1000];
}

double LimitMeter::ReadBandwidth(size_t first) const {
  return Median({read_gbps_.begin() + first, read_gbps_.end()});
}

}  // namespace flash
