#include "tests/kernels/backend_fixture.h"

#include <utility>

#include "absl/status/status.h"
#include "kernels/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/isa.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/kernels/eager_backend.h"
#include "tests/kernels/test_memory.h"

namespace flash {

Step StepOfSingleRows(const std::vector<Row>& rows) {
  Step step = {.rows = rows, .runs = {}};
  for (size_t n = 0; n < rows.size(); ++n) {
    step.runs.push_back({.first_row = static_cast<int32_t>(n), .num_rows = 1});
  }
  return step;
}

TestBackend::TestBackend(const std::string& isa, int num_threads,
                         const Workload& workload)
    : pool_(num_threads) {
  if (isa == kCuda) {
    auto backend = MakeCudaBackend({});
    FLASH_CHECK(backend.ok());
    backend_ = std::make_unique<EagerBackend>(*std::move(backend));
  } else {
    auto backend = MakeCpuBackend(pool_, isa);
    FLASH_CHECK(backend.ok());
    backend_ = *std::move(backend);
  }
  FLASH_CHECK(backend_->Reserve(workload).ok());
}

std::vector<uint8_t> TestBackend::EndStep(size_t rows) const {
  std::vector<uint8_t> faults(rows, 2);
  EXPECT_TRUE(backend_->EndStep(faults).ok());
  return faults;
}

BackendTest::BackendTest() {
  SetMemorySource(is_on_card() ? MemorySource::kCard : MemorySource::kHost);
}

void BackendTest::SetUp() {
  if (is_on_card()) {
    const auto cards = CudaDevices();
    if (!cards.ok()) GTEST_SKIP() << cards.status();
    return;
  }
  const auto kernels = cpu::FindKernels(isa());
  if (absl::IsUnavailable(kernels.status())) GTEST_SKIP() << kernels.status();
  ASSERT_TRUE(kernels.ok()) << kernels.status();
}

std::vector<int> BackendTest::RandomPlaces(int num_places, int size,
                                           RandomSource& random) {
  std::vector<int> places(num_places);
  for (int place = 0; place < num_places; ++place) places[place] = place;
  for (int n = 0; n < size; ++n) {
    std::swap(places[n], places[random.Integer(n, num_places - 1)]);
  }
  places.resize(size);
  return places;
}

std::string BackendName(
    const testing::TestParamInfo<BackendTest::ParamType>& info) {
  const auto& [isa, num_threads] = info.param;
  return isa == kCuda ? isa : isa + "_" + std::to_string(num_threads);
}

}  // namespace flash
