// NVIDIA cards behind the border of backend.h. A build without the toolkit
// links no_cuda.cc instead of cuda_backend.cc, whose only answer is that there
// is none: callers need not know which.

#ifndef KERNELS_CUDA_CUDA_BACKEND_H_
#define KERNELS_CUDA_CUDA_BACKEND_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace flash {

struct CudaDevice {
  int index = 0;  // as in --device=cuda:N
  std::string name;
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
  int compute_major = 0;  // the compute capability, 9.0 for an H200
  int compute_minor = 0;
};

// The cards that this process sees and that answer, at least one. UNAVAILABLE,
// with the reason, if there is none: this build has no CUDA, there is no
// driver, or no card. Looking takes some memory of each.
absl::StatusOr<std::vector<CudaDevice>> CudaDevices();

// Card `index`, which becomes this thread's current one. UNAVAILABLE if there
// is no such card. Takes some memory of that card alone.
absl::StatusOr<CudaDevice> FindCudaDevice(int index);

struct CudaOptions {
  int device = 0;
};

// A backend that computes on one card. UNAVAILABLE if there is no such card, or
// none that the kernels are compiled for.
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(
    const CudaOptions& options);

}  // namespace flash

#endif  // KERNELS_CUDA_CUDA_BACKEND_H_
