#include "kernels/cuda/device_memory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace flash::cuda {
namespace {

class DeviceBuffer final : public Buffer {
 public:
  DeviceBuffer(void* data, size_t size)
      : Buffer(static_cast<std::byte*>(data), size) {}
  ~DeviceBuffer() override { cudaFree(data()); }
};

absl::Status AllocationError(std::string_view where, size_t bytes,
                             cudaError_t error) {
  if (error != cudaErrorMemoryAllocation) {
    return DeviceError("an allocation", error);
  }
  cudaGetLastError();  // too little memory is no failure of the card
  return absl::ResourceExhaustedError(
      absl::StrCat(std::string(where), " has no memory for ", bytes, " bytes"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Buffer>> AllocateOnDevice(size_t bytes,
                                                         cudaStream_t stream) {
  const size_t size = std::max<size_t>(bytes, 1);
  void* data = nullptr;
  cudaError_t error = cudaMalloc(&data, size);
  if (error != cudaSuccess) return AllocationError("the card", bytes, error);
  auto buffer = std::make_unique<DeviceBuffer>(data, bytes);
  error = cudaMemsetAsync(data, 0, size, stream);
  if (error != cudaSuccess) return DeviceError("an allocation", error);
  return buffer;
}

absl::StatusOr<PinnedBytes> AllocatePinned(size_t bytes) {
  void* data = nullptr;
  const cudaError_t error = cudaMallocHost(&data, std::max<size_t>(bytes, 1));
  if (error != cudaSuccess) return AllocationError("the host", bytes, error);
  return PinnedBytes(static_cast<std::byte*>(data));
}

}  // namespace flash::cuda
