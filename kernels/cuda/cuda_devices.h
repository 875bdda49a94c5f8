// Which cards there are.

#ifndef KERNELS_CUDA_CUDA_DEVICES_H_
#define KERNELS_CUDA_CUDA_DEVICES_H_

#include "absl/status/statusor.h"
#include "kernels/cuda/cuda_backend.h"

namespace flash::cuda {

// Card `index`, which becomes this thread's current one. UNAVAILABLE if there
// is no such card. It takes some memory of the card, as any use of it does, and
// leaves the others alone.
absl::StatusOr<CudaDevice> FindDevice(int index);

}  // namespace flash::cuda

#endif  // KERNELS_CUDA_CUDA_DEVICES_H_
