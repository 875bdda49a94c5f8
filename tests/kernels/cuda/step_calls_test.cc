// Which steps become graphs, and that a graph does the work of its calls.

#include "kernels/cuda/step_calls.h"

#include "tests/cuda_emulator/emulator_fixture.h"

namespace flash::cuda {
namespace {

// How often Write() was called.
int num_calls = 0;

// Writes bytes of `value`.
cudaError_t Write(uint8_t* to, int value, cudaStream_t stream) {
  ++num_calls;
  return cudaMemsetAsync(to, value, 1, stream);
}

cudaError_t Fail(cudaStream_t) { return cudaErrorInvalidValue; }

class StepGraphsTest : public cuda_emulator::EmulatorTest {
 protected:
  StepGraphsTest() {
    num_calls = 0;
    cudaStream_t stream = nullptr;
    EXPECT_EQ(cudaStreamCreate(&stream), cudaSuccess);
    stream_.reset(stream);
  }

  // A step that writes `value`: what it leaves there, after something else was
  // there.
  int WrittenBy(int value) {
    EXPECT_EQ(cudaMemset(byte_.data(), 99, 1), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    CallList calls;
    calls.Add("Write", &Write, byte_.data(), value);
    EXPECT_TRUE(graphs_.Run(std::move(calls), stream_.get()).ok());
    EXPECT_EQ(cudaStreamSynchronize(stream_.get()), cudaSuccess);
    return byte_.Download()[0];
  }

  cuda_emulator::OnCard<uint8_t> byte_{std::vector<uint8_t>(1)};
  Stream stream_;
  StepGraphs graphs_;
};

TEST_F(StepGraphsTest, CallNothingFromTheThirdTimeOnAndDoTheSame) {
  for (int time = 1; time <= 5; ++time) {
    EXPECT_EQ(WrittenBy(7), 7);
    EXPECT_EQ(num_calls, time < 2 ? time : 2);
  }
}

TEST_F(StepGraphsTest, TellStepsApartByTheirArguments) {
  for (int time = 0; time < 3; ++time) {
    EXPECT_EQ(WrittenBy(1), 1);
    EXPECT_EQ(WrittenBy(2), 2);
  }
  EXPECT_EQ(num_calls, 4);
}

TEST_F(StepGraphsTest, ForgetTheOneThatWasNotUsedForTheLongestTime) {
  for (int time = 0; time < 3; ++time) EXPECT_EQ(WrittenBy(0), 0);
  for (int value = 1; value <= 200; ++value) {
    EXPECT_EQ(WrittenBy(value), value);
    EXPECT_EQ(WrittenBy(0), 0);
  }
  EXPECT_EQ(num_calls, 202);
  EXPECT_EQ(WrittenBy(1), 1);
  EXPECT_EQ(num_calls, 203);
}

TEST_F(StepGraphsTest, SayWhatFailed) {
  CallList calls;
  calls.Add("an experiment", &Fail);
  const absl::Status status = graphs_.Run(std::move(calls), stream_.get());
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_NE(std::string(status.message()).find("an experiment"),
            std::string::npos)
      << status;
}

}  // namespace
}  // namespace flash::cuda
