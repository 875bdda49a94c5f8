// The limits of a processor, by loops that do nothing else.

#include <algorithm>
#include <chrono>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/check.h"
#include "tests/bench/limit_loops.h"
#include "tests/bench/machine_limits.h"

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

// Those of the backend whose Describe() is "cpu <name>, ...".
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

class ProcessorLimits final : public LimitMeter {
 public:
  ProcessorLimits(Backend& backend, ThreadPool& pool, size_t bytes)
      : pool_(pool),
        loops_(FindLimitLoops(backend.Describe())),
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

 private:
  double MeasureBandwidth() override {
    const int64_t piece = static_cast<int64_t>(data_.size()) / kTasks;
    const double seconds = SecondsOf([&] {
      pool_.ParallelFor(kTasks, [&](int task, int) {
        results_[task] = loops_.read(data_.data() + task * piece, piece);
      });
    });
    return static_cast<double>(data_.size() * sizeof(float)) / seconds * 1e-9;
  }

  std::optional<PeakGflops> MeasurePeak() override {
    return PeakGflops{
        .float32 = PeakOf(loops_.multiply_add, loops_.operations),
        .bfloat16 = PeakOf(loops_.pair_multiply_add, loops_.pair_operations)};
  }

  double PeakOf(float (*loop)(const float*, int64_t), int64_t operations) {
    const std::vector<float> seeds(64, 0.0f);
    const int threads = pool_.num_threads();
    const double seconds = SecondsOf([&] {
      pool_.ParallelFor(threads, [&](int task, int) {
        results_[task] = loop(seeds.data(), kRounds);
      });
    });
    return static_cast<double>(operations * kRounds * threads) / seconds * 1e-9;
  }

  ThreadPool& pool_;
  const LimitLoops& loops_;
  std::unique_ptr<Buffer> memory_;
  std::span<float> data_;
  std::vector<float> results_;  // so that the work is not left out
};

}  // namespace

std::unique_ptr<LimitMeter> MakeProcessorLimits(Backend& backend,
                                                ThreadPool& pool,
                                                size_t bytes) {
  return std::make_unique<ProcessorLimits>(backend, pool, bytes);
}

}  // namespace flash
