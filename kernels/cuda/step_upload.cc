#include "kernels/cuda/step_upload.h"

#include <utility>

#include "kernels/check.h"
#include "kernels/cuda/device_memory.h"

namespace flash::cuda {
namespace {

// Every item begins on a line, which is enough for any type.
constexpr size_t WholeLines(size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

absl::StatusOr<std::unique_ptr<StepUpload>> StepUpload::Create(
    size_t bytes, cudaStream_t stream) {
  absl::StatusOr<std::unique_ptr<Buffer>> memory =
      AllocateOnDevice(WholeLines(bytes), stream);
  if (!memory.ok()) return memory.status();
  absl::StatusOr<PinnedBytes> pinned = AllocatePinned(WholeLines(bytes));
  if (!pinned.ok()) return pinned.status();
  return std::unique_ptr<StepUpload>(
      new StepUpload(*std::move(memory), *std::move(pinned), stream));
}

bool StepUpload::HasRoom(size_t bytes) const {
  return WholeLines(bytes) <= memory_->size() - end_;
}

const std::byte* StepUpload::PutBytes(const void* from, size_t bytes) {
  FLASH_CHECK(HasRoom(bytes));
  if (bytes > 0) std::memcpy(pinned_.get() + end_, from, bytes);
  const std::byte* to = memory_->data() + end_;
  end_ += WholeLines(bytes);
  return to;
}

cudaError_t StepUpload::Send() {
  if (sent_ == end_) return cudaSuccess;
  const cudaError_t error =
      cudaMemcpyAsync(memory_->data() + sent_, pinned_.get() + sent_,
                      end_ - sent_, cudaMemcpyHostToDevice, stream_);
  sent_ = end_;
  return error;
}

}  // namespace flash::cuda
