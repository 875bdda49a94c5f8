// How kernels are started: a plain function call, so that a host compiler can
// take the same sources (tests/cuda_emulator) as nvcc.
//
// Kernels use no dynamic shared memory: their tiles have fixed sizes.

#ifndef KERNELS_CUDA_LAUNCH_H_
#define KERNELS_CUDA_LAUNCH_H_

#include <cuda_runtime.h>

#include <cstdint>

namespace flash::cuda {

inline constexpr int kWarp = 32;  // threads of one
inline constexpr unsigned kAllLanes = 0xffffffff;

struct LaunchShape {
  dim3 grid;
  unsigned block = 0;  // threads
  cudaStream_t stream = nullptr;
};

// Starts kernel(args...) on the stream; does not wait. An empty grid starts
// nothing.
template <typename... Params, typename... Args>
cudaError_t Launch(void (*kernel)(Params...), const LaunchShape& shape,
                   const Args&... args) {
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) {
    return cudaSuccess;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = dim3(shape.block);
  config.stream = shape.stream;
  return cudaLaunchKernelEx(&config, kernel, Params(args)...);
}

// How many blocks of `size` cover `n`.
constexpr unsigned NumBlocks(int64_t n, int64_t size) {
  return static_cast<unsigned>((n + size - 1) / size);
}

}  // namespace flash::cuda

#endif  // KERNELS_CUDA_LAUNCH_H_
