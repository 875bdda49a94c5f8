// A machine with one card, as new for every test, and memory of it.

#ifndef TESTS_CUDA_EMULATOR_EMULATOR_FIXTURE_H_
#define TESTS_CUDA_EMULATOR_EMULATOR_FIXTURE_H_

#include <cuda_runtime.h>

#include <vector>

#include "gtest/gtest.h"
#include "tests/cuda_emulator/emulator.h"

namespace cuda_emulator {

// Numbers on the card.
template <typename T>
class OnCard {
 public:
  explicit OnCard(const std::vector<T>& numbers) : size_(numbers.size()) {
    EXPECT_EQ(cudaMalloc(&data_, size_ * sizeof(T)), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data_, numbers.data(), size_ * sizeof(T),
                         cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  // Zeros.
  static OnCard Zeros(int count) { return OnCard(std::vector<T>(count)); }
  ~OnCard() { cudaFree(data_); }
  OnCard(const OnCard&) = delete;
  OnCard& operator=(const OnCard&) = delete;

  T* data() const { return data_; }
  std::vector<T> Download() const {
    std::vector<T> numbers(size_);
    EXPECT_EQ(cudaMemcpy(numbers.data(), data_, size_ * sizeof(T),
                         cudaMemcpyDeviceToHost),
              cudaSuccess);
    return numbers;
  }

 private:
  const size_t size_;
  T* data_ = nullptr;
};

class EmulatorTest : public testing::Test {
 protected:
  void SetUp() override {
    SetMachine({});
    CollectReports(true);
  }
  void TearDown() override {
    SetMachine({});
    CollectReports(false);
  }

  // What the launches before this were found to do wrong; the card is as new
  // afterwards.
  static std::vector<std::string> Reports() {
    cudaDeviceSynchronize();
    std::vector<std::string> reports = TakeReports();
    SetMachine({});
    return reports;
  }
};

}  // namespace cuda_emulator

#endif  // TESTS_CUDA_EMULATOR_EMULATOR_FIXTURE_H_
