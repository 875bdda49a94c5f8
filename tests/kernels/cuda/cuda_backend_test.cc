// What a card's backend says where there is none, too little of it, or one that
// fails; and that what it puts off is done.

#include "kernels/cuda/cuda_backend.h"

#include <functional>

#include "gmock/gmock.h"
#include "tests/cuda_emulator/emulator_fixture.h"
#include "tests/reference/random_source.h"

namespace flash {
namespace {

using testing::HasSubstr;

class CudaBackendTest : public cuda_emulator::EmulatorTest {
 protected:
  static std::unique_ptr<Backend> Make() {
    auto backend = MakeCudaBackend({});
    EXPECT_TRUE(backend.ok()) << backend.status();
    EXPECT_TRUE((*backend)->Reserve({.max_rows = 4}).ok());
    return *std::move(backend);
  }

  // Marks the faults of one row, which has a NaN.
  static absl::Status Step(Backend& backend, Buffer& numbers,
                           std::vector<uint8_t>& faults) {
    const Row row;
    const RowRun run = {.first_row = 0, .num_rows = 1};
    backend.BeginStep({.rows = {&row, 1}, .runs = {&run, 1}});
    backend.FindFaults(
        {reinterpret_cast<const float*>(numbers.data()), 1, 16, 16});
    return backend.EndStep(faults);
  }
};

TEST_F(CudaBackendTest, IsUnavailableWithoutACardAndSaysWhy) {
  cuda_emulator::SetMachine(
      {.num_devices = 0, .no_device_error = cudaErrorInsufficientDriver});
  const absl::Status status = MakeCudaBackend({}).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(cudaGetErrorString(cudaErrorInsufficientDriver)));
  EXPECT_TRUE(absl::IsUnavailable(CudaDevices().status()));
}

TEST_F(CudaBackendTest, IsUnavailableOnACardThatIsNotThere) {
  cuda_emulator::SetMachine({.num_devices = 2});
  ASSERT_TRUE(CudaDevices().ok());
  EXPECT_EQ(CudaDevices()->size(), 2u);
  EXPECT_TRUE(MakeCudaBackend({.device = 1}).ok());
  for (const int device : {-1, 2}) {
    EXPECT_TRUE(
        absl::IsUnavailable(MakeCudaBackend({.device = device}).status()));
  }
}

TEST_F(CudaBackendTest, IsExhaustedWhereMemoryEndsAndGoesOnAfterwards) {
  const auto backend = Make();
  const auto devices = CudaDevices();
  ASSERT_TRUE(devices.ok());
  const auto too_much = backend->Allocate((*devices)[0].free_bytes + 1);
  EXPECT_TRUE(absl::IsResourceExhausted(too_much.status()))
      << too_much.status();
  const auto numbers = *backend->Allocate(16 * sizeof(float));
  std::vector<uint8_t> faults(1);
  EXPECT_TRUE(Step(*backend, *numbers, faults).ok());
  EXPECT_EQ(faults[0], 0);
}

TEST_F(CudaBackendTest, RemembersTheFirstFailureAndDoesNothingMore) {
  const auto backend = Make();
  const auto numbers = *backend->Allocate(16 * sizeof(float));
  std::vector<uint8_t> faults(1);
  ASSERT_TRUE(Step(*backend, *numbers, faults).ok());
  for (int64_t nth = 1; nth <= 4; ++nth) {
    SCOPED_TRACE(nth);
    const auto failing = Make();
    const auto memory = *failing->Allocate(16 * sizeof(float));
    cuda_emulator::FailCall(nth, cudaErrorECCUncorrectable, /*sticky=*/true);
    const absl::Status first = Step(*failing, *memory, faults);
    EXPECT_EQ(first.code(), absl::StatusCode::kInternal) << first;
    EXPECT_THAT(std::string(first.message()),
                HasSubstr(cudaGetErrorString(cudaErrorECCUncorrectable)));
    const int64_t calls = cuda_emulator::NumCalls();
    EXPECT_EQ(Step(*failing, *memory, faults), first);
    EXPECT_EQ(cuda_emulator::NumCalls(), calls);
    EXPECT_EQ(failing->Allocate(1).status(), first);
    cuda_emulator::SetMachine({});
  }
}

// Rows of numbers on the card.
class Rows {
 public:
  static constexpr int64_t kRows = 3;
  static constexpr int64_t kCols = 32;

  Rows(Backend& backend, RandomSource& random)
      : backend_(backend),
        memory_(*backend.Allocate(kRows * kCols * sizeof(float))) {
    std::vector<float> numbers(kRows * kCols);
    for (float& number : numbers) number = static_cast<float>(random.Normal());
    backend.Upload(memory_->data(), numbers.data(), memory_->size());
  }
  MatrixView<float> view() const {
    return {reinterpret_cast<float*>(memory_->data()), kRows, kCols, kCols};
  }
  std::vector<float> Download() const {
    std::vector<float> numbers(kRows * kCols);
    backend_.Download(numbers.data(), memory_->data(), memory_->size());
    return numbers;
  }

 private:
  Backend& backend_;
  const std::unique_ptr<Buffer> memory_;
};

// Operations leave work to those after them, as bfloat16 inputs and as SiLU;
// one that comes in between must not make use of it.
TEST_F(CudaBackendTest, ComputesTheSameBitsInOneStepAndInSteps) {
  RandomSource random(1);
  const auto backend = *MakeCudaBackend({});
  ASSERT_TRUE(backend->Reserve({.max_rows = 3, .max_inputs = 32}).ok());
  std::vector<float> weights(Rows::kCols * Rows::kCols);
  for (float& weight : weights) weight = static_cast<float>(random.Normal());
  const auto dense = *backend->MakeDense(
      {.segments = {{reinterpret_cast<const std::byte*>(weights.data()),
                     Rows::kCols}},
       .cols = Rows::kCols,
       .stored = DataType::kBFloat16,
       .bias = {}});
  const Rows x(*backend, random), y(*backend, random), z(*backend, random),
      out(*backend, random);
  const std::vector<int32_t> chosen = {2, 0, 1};
  const std::vector<std::function<void()>> operations = {
      [&] { backend->Normalize({}, x.view(), y.view()); },
      [&] { backend->GatherRows(chosen, x.view(), y.view()); },
      [&] { backend->Project(*dense, y.view(), Activation::kSilu, z.view()); },
      [&] { backend->Normalize({}, z.view(), out.view()); },
      [&] { backend->ProjectAndAdd(*dense, out.view(), y.view()); },
      [&] { backend->ProjectAndAdd(*dense, y.view(), out.view()); },
  };
  const auto run = [&](bool in_one_step) {
    backend->BeginStep({});
    for (const auto& operation : operations) {
      operation();
      if (in_one_step) continue;
      EXPECT_TRUE(backend->EndStep({}).ok());
    }
    EXPECT_TRUE(backend->EndStep({}).ok());
    return out.Download();
  };
  const std::vector<float> expected = run(/*in_one_step=*/false);
  for (int time = 0; time < 3; ++time) EXPECT_EQ(run(true), expected);
}

}  // namespace
}  // namespace flash
