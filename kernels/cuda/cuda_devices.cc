// Which cards there are.

#include <cuda_runtime.h>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_handles.h"

namespace flash {
namespace {

using cuda::NoCard;

absl::StatusOr<int> NumDevices() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return NoCard(cudaGetErrorString(error));
  if (count == 0) return NoCard("this machine has none");
  return count;
}

}  // namespace

absl::StatusOr<CudaDevice> FindCudaDevice(int index) {
  const absl::StatusOr<int> count = NumDevices();
  if (!count.ok()) return count.status();
  if (index < 0 || index >= *count) {
    return NoCard(absl::StrCat("number ", index, " is none of ", *count));
  }
  cudaDeviceProp properties = {};
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  cudaError_t error = cudaGetDeviceProperties(&properties, index);
  if (error == cudaSuccess) error = cudaSetDevice(index);
  if (error == cudaSuccess) error = cudaMemGetInfo(&free_bytes, &total_bytes);
  if (error != cudaSuccess) return NoCard(cudaGetErrorString(error));
  return CudaDevice{.index = index,
                    .name = properties.name,
                    .free_bytes = static_cast<int64_t>(free_bytes),
                    .total_bytes = static_cast<int64_t>(total_bytes),
                    .compute_major = properties.major,
                    .compute_minor = properties.minor};
}

absl::StatusOr<std::vector<CudaDevice>> CudaDevices() {
  const absl::StatusOr<int> count = NumDevices();
  if (!count.ok()) return count.status();
  std::vector<CudaDevice> devices;
  absl::Status failure;
  for (int index = 0; index < *count; ++index) {
    absl::StatusOr<CudaDevice> device = FindCudaDevice(index);
    if (device.ok()) {
      devices.push_back(*std::move(device));
    } else {  // the others may be sound
      failure = device.status();
    }
  }
  if (devices.empty()) return failure;
  return devices;
}

}  // namespace flash
