// Memory of one card.

#ifndef KERNELS_CUDA_DEVICE_MEMORY_H_
#define KERNELS_CUDA_DEVICE_MEMORY_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda_handles.h"

namespace flash::cuda {

// Zeroed memory of the current card; it is zero for what comes after in
// `stream`. RESOURCE_EXHAUSTED if there is not that much.
absl::StatusOr<std::unique_ptr<Buffer>> AllocateOnDevice(size_t bytes,
                                                         cudaStream_t stream);

// RESOURCE_EXHAUSTED if the host has not that much to pin.
absl::StatusOr<PinnedBytes> AllocatePinned(size_t bytes);

}  // namespace flash::cuda

#endif  // KERNELS_CUDA_DEVICE_MEMORY_H_
