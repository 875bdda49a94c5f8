#include "tests/bench/machine_limits.h"

#include <algorithm>

#include "kernels/check.h"
#include "tests/bench/median.h"

namespace flash {

void LimitMeter::MultiplyAndAdd() {
  const std::optional<PeakGflops> peak = MeasurePeak();
  if (!peak.has_value()) return;
  float32_gflops_.push_back(peak->float32);
  bfloat16_gflops_.push_back(peak->bfloat16);
}

double LimitMeter::ReadBandwidth(size_t first) const {
  return Median({gbps_.begin() + first, gbps_.end()});
}

double LimitMeter::ReadTail(size_t first) const {
  // The slowest take longest.
  std::vector<double> speeds(gbps_.begin() + first, gbps_.end());
  FLASH_CHECK(!speeds.empty());
  std::sort(speeds.begin(), speeds.end());
  return speeds[speeds.size() / 2] / speeds[speeds.size() / 1000];
}

std::optional<PeakGflops> LimitMeter::Peak() const {
  if (float32_gflops_.empty()) return std::nullopt;
  return PeakGflops{.float32 = Median(float32_gflops_),
                    .bfloat16 = Median(bfloat16_gflops_)};
}

}  // namespace flash
