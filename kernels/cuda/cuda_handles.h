// Owners of what the CUDA runtime and cuBLASLt hand out, and their errors as
// statuses.

#ifndef KERNELS_CUDA_CUDA_HANDLES_H_
#define KERNELS_CUDA_CUDA_HANDLES_H_

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <memory>
#include <string_view>
#include <type_traits>

#include "absl/status/status.h"

namespace flash::cuda {

// A handle that `Destroy` gives back. Handles are pointers.
template <auto Destroy>
struct Destroyer {
  template <typename T>
  void operator()(T* handle) const {
    Destroy(handle);
  }
};
template <typename Handle, auto Destroy>
using Owned =
    std::unique_ptr<std::remove_pointer_t<Handle>, Destroyer<Destroy>>;

using Stream = Owned<cudaStream_t, cudaStreamDestroy>;
using Graph = Owned<cudaGraph_t, cudaGraphDestroy>;
using GraphExec = Owned<cudaGraphExec_t, cudaGraphExecDestroy>;
using Blas = Owned<cublasLtHandle_t, cublasLtDestroy>;
using MatmulDesc = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using MatrixLayout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using MatmulPreference =
    Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;
// Host memory that the card can read and write by itself.
using PinnedBytes = std::unique_ptr<std::byte, Destroyer<cudaFreeHost>>;

// INTERNAL: "the card failed in OPERATION: ..." in the driver's words.
absl::Status DeviceError(std::string_view operation, cudaError_t error);
absl::Status DeviceError(std::string_view operation, cublasStatus_t error);
// UNAVAILABLE: "no CUDA card: ...".
absl::Status NoCard(std::string_view why);

}  // namespace flash::cuda

#endif  // KERNELS_CUDA_CUDA_HANDLES_H_
