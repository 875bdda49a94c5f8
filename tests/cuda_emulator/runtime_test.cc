// The emulated runtime: when work is done, whose memory is whose, and failures
// to order.

#include <cublasLt.h>

#include <cmath>
#include <cstdlib>
#include <vector>

#include "gmock/gmock.h"
#include "tests/cuda_emulator/emulator_fixture.h"
#include "tests/cuda_emulator/test_kernels.h"

namespace cuda_emulator {
namespace {

using testing::Each;
using testing::ElementsAre;

class RuntimeTest : public EmulatorTest {
 protected:
  void SetUp() override {
    EmulatorTest::SetUp();
    cudaStreamCreate(&stream_);
    cudaMallocHost(&pinned_, sizeof(int));
  }
  void TearDown() override {
    EmulatorTest::TearDown();
    cudaFreeHost(pinned_);
    cudaStreamDestroy(stream_);
  }

  cudaError_t CopyBack(const OnCard<int>& number) {
    return cudaMemcpyAsync(pinned_, number.data(), sizeof(int),
                           cudaMemcpyDeviceToHost, stream_);
  }

  cudaStream_t stream_ = nullptr;
  int* pinned_ = nullptr;
};

TEST_F(RuntimeTest, DoesWorkWhenSomebodyWaits) {
  const OnCard<int> number({5});
  *pinned_ = 0;
  ASSERT_EQ(CopyBack(number), cudaSuccess);
  EXPECT_EQ(*pinned_, 0);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(*pinned_, 5);
}

TEST_F(RuntimeTest, DoesWorkAtOnceWhereLaunchesBlock) {
  ASSERT_EQ(setenv("CUDA_LAUNCH_BLOCKING", "1", 1), 0);
  const OnCard<int> number({5});
  CopyBack(number);
  EXPECT_EQ(*pinned_, 5);
  unsetenv("CUDA_LAUNCH_BLOCKING");
}

TEST_F(RuntimeTest, ReadsPinnedMemoryWhenTheCopyIsMade) {
  const OnCard<int> number({0});
  *pinned_ = 1;
  cudaMemcpyAsync(number.data(), pinned_, sizeof(int), cudaMemcpyHostToDevice,
                  stream_);
  *pinned_ = 2;
  cudaStreamSynchronize(stream_);
  EXPECT_THAT(number.Download(), ElementsAre(2));
}

TEST_F(RuntimeTest, ReplaysAGraph) {
  const OnCard<int> number({5});
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t instance = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal),
            cudaSuccess);
  CopyBack(number);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorStreamCaptureUnsupported);
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&instance, graph), cudaSuccess);
  cudaGraphDestroy(graph);
  for (int n = 0; n < 2; ++n) {
    *pinned_ = 0;
    ASSERT_EQ(cudaGraphLaunch(instance, stream_), cudaSuccess);
    EXPECT_EQ(*pinned_, 0);
    cudaStreamSynchronize(stream_);
    EXPECT_EQ(*pinned_, 5);
  }
  cudaGraphExecDestroy(instance);
}

using RuntimeDeathTest = RuntimeTest;

TEST_F(RuntimeDeathTest, KeepsTheHostOutOfDeviceMemory) {
  const OnCard<int> number({5});
  EXPECT_DEATH(*pinned_ = *const_cast<volatile int*>(number.data()), "");
}

TEST_F(RuntimeTest, GivesMemoryThatHoldsNoNumbers) {
  float* numbers = nullptr;
  ASSERT_EQ(cudaMallocManaged(reinterpret_cast<void**>(&numbers), 12),
            cudaSuccess);
  for (int n = 0; n < 3; ++n) EXPECT_TRUE(std::isnan(numbers[n]));
  cudaFree(numbers);
}

TEST_F(RuntimeTest, GivesNoMoreMemoryThanTheCardHas) {
  SetMachine({.device_bytes = 1000});
  void* most = nullptr;
  void* rest = nullptr;
  ASSERT_EQ(cudaMalloc(&most, 600), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&rest, 401), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  size_t free = 0;
  size_t total = 0;
  cudaMemGetInfo(&free, &total);
  EXPECT_EQ(free, 400u);
  EXPECT_EQ(total, 1000u);
  cudaFree(most);
  EXPECT_EQ(AllocatedBytes(), 0u);
}

TEST_F(RuntimeTest, RefusesToCopyWhatIsNotThere) {
  const OnCard<int> number({5});
  int numbers[2] = {};
  EXPECT_EQ(cudaMemcpy(numbers, number.data(), 8, cudaMemcpyDeviceToHost),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(numbers, number.data(), 4, cudaMemcpyHostToHost),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(number.data() + 1, 0, 1), cudaErrorInvalidValue);
}

TEST_F(RuntimeTest, FailsTheCallThatItIsToldTo) {
  int device = 0;
  FailCall(2, cudaErrorUnknown, /*sticky=*/false);
  EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(cudaGetDevice(&device), cudaErrorUnknown);
  EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  FailCall(1, cudaErrorECCUncorrectable, /*sticky=*/true);
  EXPECT_EQ(cudaGetDevice(&device), cudaErrorECCUncorrectable);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorECCUncorrectable);
}

TEST_F(RuntimeTest, MayHaveNoCardOrSeveral) {
  int count = 0;
  SetMachine(
      {.num_devices = 0, .no_device_error = cudaErrorInsufficientDriver});
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
  SetMachine({.num_devices = 3});
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 3);
  EXPECT_EQ(cudaSetDevice(2), cudaSuccess);
  EXPECT_EQ(cudaSetDevice(3), cudaErrorInvalidDevice);
}

TEST_F(RuntimeTest, MultipliesMatrices) {
  constexpr int64_t kOutputs = 3;
  constexpr int64_t kDepth = 4;
  constexpr int64_t kRows = 2;
  const OnCard<float> weights({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  const OnCard<float> x({1, 0, 0, 1, 0, 2, 0, 0});
  const OnCard<float> bias({100, 200, 300});
  const OnCard<float> y({1, 1, 1, 1, 1, 1});
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
  ASSERT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_SUCCESS);
  cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  const cublasOperation_t transposed = CUBLAS_OP_T;
  cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                 sizeof(transposed));
  const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
  cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                 sizeof(epilogue));
  const float* bias_data = bias.data();
  cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                 &bias_data, sizeof(bias_data));
  cublasLtMatrixLayoutCreate(&a, CUDA_R_32F, kDepth, kOutputs, kDepth);
  cublasLtMatrixLayoutCreate(&b, CUDA_R_32F, kDepth, kRows, kDepth);
  cublasLtMatrixLayoutCreate(&d, CUDA_R_32F, kOutputs, kRows, kOutputs);
  const float one = 1;
  const cublasLtMatmulAlgo_t algorithm = {{16, 16, 16, 16}};
  EXPECT_EQ(
      cublasLtMatmul(handle, desc, &one, weights.data(), a, x.data(), b, &one,
                     y.data(), d, y.data(), d, &algorithm, nullptr, 0, nullptr),
      CUBLAS_STATUS_SUCCESS);
  EXPECT_THAT(y.Download(), ElementsAre(106, 214, 322, 105, 213, 321));
  // Of another depth.
  cublasLtMatrixLayoutDestroy(b);
  cublasLtMatrixLayoutCreate(&b, CUDA_R_32F, kDepth - 1, kRows, kDepth);
  EXPECT_EQ(
      cublasLtMatmul(handle, desc, &one, weights.data(), a, x.data(), b, &one,
                     y.data(), d, y.data(), d, &algorithm, nullptr, 0, nullptr),
      CUBLAS_STATUS_INVALID_VALUE);
  cublasLtMatrixLayoutDestroy(a);
  cublasLtMatrixLayoutDestroy(b);
  cublasLtMatrixLayoutDestroy(d);
  cublasLtMatmulDescDestroy(desc);
  cublasLtDestroy(handle);
}

}  // namespace
}  // namespace cuda_emulator
