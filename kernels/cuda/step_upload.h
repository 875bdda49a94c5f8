// What a step's operations are told by the host (rows, folds, frequencies), on
// its way to the card: one pinned block and one block of the card's memory,
// taken once.

#ifndef KERNELS_CUDA_STEP_UPLOAD_H_
#define KERNELS_CUDA_STEP_UPLOAD_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda_handles.h"

namespace flash::cuda {

// Thread safety: one thread at a time.
class StepUpload {
 public:
  // Room for `bytes` at once. RESOURCE_EXHAUSTED if there is not that much.
  static absl::StatusOr<std::unique_ptr<StepUpload>> Create(
      size_t bytes, cudaStream_t stream);

  size_t capacity() const { return memory_->size(); }

  // Forgets everything. What was put must not be on its way any more.
  void Clear() { sent_ = end_ = 0; }

  // Whether Put() has room for `bytes`.
  bool HasRoom(size_t bytes) const;

  // Takes a copy, and returns where it will be on the card after Send().
  // REQUIRES: HasRoom().
  template <typename T>
  const T* Put(std::span<const T> items) {
    return reinterpret_cast<const T*>(
        PutBytes(items.data(), items.size_bytes()));
  }

  // Sends what was put since the last time, in order with the stream.
  cudaError_t Send();

 private:
  StepUpload(std::unique_ptr<Buffer> memory, PinnedBytes pinned,
             cudaStream_t stream)
      : memory_(std::move(memory)),
        pinned_(std::move(pinned)),
        stream_(stream) {}

  const std::byte* PutBytes(const void* from, size_t bytes);

  const std::unique_ptr<Buffer> memory_;
  const PinnedBytes pinned_;
  const cudaStream_t stream_;
  size_t sent_ = 0;
  size_t end_ = 0;
};

}  // namespace flash::cuda

#endif  // KERNELS_CUDA_STEP_UPLOAD_H_
