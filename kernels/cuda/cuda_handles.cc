#include "kernels/cuda/cuda_handles.h"

#include "absl/strings/str_cat.h"

namespace flash::cuda {
namespace {

absl::Status Failure(std::string_view operation, const char* words) {
  return absl::InternalError(
      absl::StrCat("the card failed in ", std::string(operation), ": ", words));
}

}  // namespace

absl::Status DeviceError(std::string_view operation, cudaError_t error) {
  return Failure(operation, cudaGetErrorString(error));
}

absl::Status DeviceError(std::string_view operation, cublasStatus_t error) {
  return Failure(operation, cublasLtGetStatusString(error));
}

absl::Status NoCard(std::string_view why) {
  return absl::UnavailableError(
      absl::StrCat("no CUDA card: ", std::string(why)));
}

}  // namespace flash::cuda
