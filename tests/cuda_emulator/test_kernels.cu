#include "tests/cuda_emulator/test_kernels.h"

namespace cuda_emulator {
namespace {

constexpr unsigned kAll = 0xffffffff;

template <typename... Params, typename... Args>
cudaError_t Start(void (*kernel)(Params...), dim3 grid, dim3 block,
                  Args... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  return cudaLaunchKernelEx(&config, kernel, args...);
}

__global__ void WriteNumbersKernel(uint32_t* out) {
  const uint32_t block =
      (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const uint32_t thread =
      (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const uint32_t number = block * (blockDim.x * blockDim.y * blockDim.z);
  out[number + thread] = number + thread;
}

__global__ void ReverseKernel(const float* in, float* out, bool waits) {
  __shared__ float numbers[kReversed];
  const unsigned i = threadIdx.x;
  numbers[i] = in[i];
  if (waits) __syncthreads();
  out[i] = numbers[kReversed - 1 - i];
}

__global__ void SwapNeighboursKernel(float* numbers, bool waits) {
  const unsigned i = threadIdx.x;
  const float neighbour = numbers[i ^ 1];
  if (waits) __syncwarp();
  numbers[i] = neighbour;
}

__global__ void ShuffleKernel(const int* in, int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  int sum = in[lane];
  for (int bits = 16; bits > 0; bits /= 2) {
    sum += __shfl_xor_sync(kAll, sum, bits);
  }
  int scan = in[lane];
  for (int delta = 1; delta < 32; delta *= 2) {
    const int below = __shfl_up_sync(kAll, scan, delta);
    if (lane >= delta) scan += below;
  }
  out[lane] = sum;
  out[32 + lane] = scan;
  out[64 + lane] = __shfl_sync(kAll, in[lane], 5);
}

__global__ void VoteKernel(unsigned* out) {
  const int odd = threadIdx.x % 2;
  const unsigned ballot = __ballot_sync(kAll, odd);
  const int any = __any_sync(kAll, odd);
  const int all = __all_sync(kAll, odd);
  if (threadIdx.x == 0) {
    out[0] = ballot;
    out[1] = any;
    out[2] = all;
  }
}

__global__ void CountKernel(int* count, bool atomically) {
  if (atomically) {
    atomicAdd(count, 1);
  } else {
    *count += 1;
  }
}

__global__ void ReadThenWriteKernel(int* number, bool waits) {
  const int old = *number;
  if (waits) __syncthreads();
  if (threadIdx.x == 7) *number = old + 1;
}

__global__ void WriteAcrossBlocksKernel(int* numbers) {
  const int read = numbers[blockIdx.x];
  numbers[1 - blockIdx.x] = read;
}

__global__ void ReadUnwrittenSharedKernel(float* out) {
  __shared__ float numbers[2];
  if (threadIdx.x == 0) numbers[0] = 1;
  __syncthreads();
  out[threadIdx.x] = numbers[threadIdx.x];
}

__global__ void StoreAtKernel(float* address) { *address = 1; }

__global__ void LoadFourAtKernel(const float* address, float* out) {
  const float4 four = *reinterpret_cast<const float4*>(address);
  *out = four.x + four.y + four.z + four.w;
}

__global__ void LeaveBeforeBarrierKernel() {
  if (threadIdx.x < 32) return;
  __syncthreads();
}

__global__ void DivideAtBarrierKernel() {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

__global__ void LeaveBeforeShuffleKernel() {
  if (threadIdx.x == 3) return;
  __shfl_sync(kAll, 1, 0);
}

__global__ void ReadLaneOutsideMaskKernel(int* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffffu, 1, 16);
}

}  // namespace

cudaError_t WriteNumbers(dim3 grid, dim3 block, uint32_t* out) {
  return Start(WriteNumbersKernel, grid, block, out);
}
cudaError_t Reverse(const float* in, float* out, Between between) {
  return Start(ReverseKernel, 1, kReversed, in, out,
               between == Between::kBarrier);
}
cudaError_t SwapNeighbours(float* numbers, Between between) {
  return Start(SwapNeighboursKernel, 1, 32, numbers,
               between == Between::kBarrier);
}
cudaError_t Shuffle(const int* in, int* out) {
  return Start(ShuffleKernel, 1, 32, in, out);
}
cudaError_t Vote(unsigned* out) { return Start(VoteKernel, 1, 32, out); }
cudaError_t Count(int* count, bool atomically) {
  return Start(CountKernel, 3, 40, count, atomically);
}
cudaError_t ReadThenWrite(int* number, Between between) {
  return Start(ReadThenWriteKernel, 1, 64, number,
               between == Between::kBarrier);
}
cudaError_t WriteAcrossBlocks(int* numbers) {
  return Start(WriteAcrossBlocksKernel, 2, 1, numbers);
}
cudaError_t ReadUnwrittenShared(float* out) {
  return Start(ReadUnwrittenSharedKernel, 1, 2, out);
}
cudaError_t StoreAt(float* address) {
  return Start(StoreAtKernel, 1, 1, address);
}
cudaError_t LoadFourAt(const float* address, float* out) {
  return Start(LoadFourAtKernel, 1, 1, address, out);
}
cudaError_t LeaveBeforeBarrier() {
  return Start(LeaveBeforeBarrierKernel, 1, 64);
}
cudaError_t DivideAtBarrier() { return Start(DivideAtBarrierKernel, 1, 64); }
cudaError_t LeaveBeforeShuffle() {
  return Start(LeaveBeforeShuffleKernel, 1, 32);
}
cudaError_t ReadLaneOutsideMask(int* out) {
  return Start(ReadLaneOutsideMaskKernel, 1, 32, out);
}

}  // namespace cuda_emulator
