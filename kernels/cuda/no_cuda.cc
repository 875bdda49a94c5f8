// cuda_backend.h in a build without CUDA.

#include "kernels/cuda/cuda_backend.h"

namespace flash {
namespace {

absl::Status NoCuda() {
  return absl::UnavailableError(
      "this build has no CUDA (FLASH_CUDA=ON builds it, with the toolkit)");
}

}  // namespace

absl::StatusOr<std::vector<CudaDevice>> CudaDevices() { return NoCuda(); }

absl::StatusOr<CudaDevice> FindCudaDevice(int) { return NoCuda(); }

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const CudaOptions&) {
  return NoCuda();
}

}  // namespace flash
