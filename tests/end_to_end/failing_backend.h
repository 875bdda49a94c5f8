// A backend whose device fails in the middle of its work.

#ifndef TESTS_END_TO_END_FAILING_BACKEND_H_
#define TESTS_END_TO_END_FAILING_BACKEND_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "kernels/backend.h"

namespace flash {

// Computes as `device` does for `good_steps` steps that have rows. Then every
// step fails, and what is asked to be copied to the host is not.
class FailingBackend final : public Backend {
 public:
  FailingBackend(std::unique_ptr<Backend> device, int64_t good_steps)
      : device_(std::move(device)), steps_left_(good_steps) {}

  std::string Describe() const override { return device_->Describe(); }
  bool HasFastBFloat16() const override { return device_->HasFastBFloat16(); }
  absl::Status Reserve(const Workload& workload) override {
    return device_->Reserve(workload);
  }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes) override {
    return device_->Allocate(bytes);
  }
  void Upload(std::byte* to, const void* from, size_t bytes) override {
    device_->Upload(to, from, bytes);
  }
  void Copy(std::byte* to, const std::byte* from, size_t bytes) override {
    device_->Copy(to, from, bytes);
  }
  void Download(void* to, const std::byte* from, size_t bytes) override {
    if (!has_failed_) device_->Download(to, from, bytes);
  }
  void Zero(std::byte* data, size_t bytes) override {
    device_->Zero(data, bytes);
  }
  absl::StatusOr<std::unique_ptr<Dense>> MakeDense(
      const DenseSource& source) override {
    return device_->MakeDense(source);
  }
  void BeginStep(const StepRows& rows) override { device_->BeginStep(rows); }
  absl::Status EndStep(std::span<uint8_t> faults) override {
    const absl::Status status = device_->EndStep(faults);
    if (!faults.empty() && --steps_left_ < 0) has_failed_ = true;
    return has_failed_ ? absl::UnknownError("it fell off the bus") : status;
  }
  int64_t StepBytes() const override { return device_->StepBytes(); }
  void Embed(const Embedding& embedding, MatrixView<float> x) override {
    device_->Embed(embedding, x);
  }
  void Normalize(const Norm& norm, MatrixView<const float> x,
                 MatrixView<float> y) override {
    device_->Normalize(norm, x, y);
  }
  void ShiftTokens(const LayerState& state, MatrixView<float> y) override {
    device_->ShiftTokens(state, y);
  }
  void RotaryAngles(const Rotary& rotary, MatrixView<float> cos,
                    MatrixView<float> sin) override {
    device_->RotaryAngles(rotary, cos, sin);
  }
  void Project(const Dense& dense, MatrixView<const float> x,
               Activation activation, MatrixView<float> y) override {
    device_->Project(dense, x, activation, y);
  }
  void ProjectAndAdd(const Dense& dense, MatrixView<const float> x,
                     MatrixView<float> y) override {
    device_->ProjectAndAdd(dense, x, y);
  }
  void AppendHeads(const Attention& attention, const LayerState& state,
                   MatrixView<const float> cos, MatrixView<const float> sin,
                   const HeadRows& heads) override {
    device_->AppendHeads(attention, state, cos, sin, heads);
  }
  void Attend(const Attention& attention, const LayerState& state,
              const HeadRows& heads, std::span<const Fold> put_off,
              MatrixView<float> gated) override {
    device_->Attend(attention, state, heads, put_off, gated);
  }
  void FoldChunks(const Attention& attention, const LayerState& state,
                  std::span<const Fold> folds) override {
    device_->FoldChunks(attention, state, folds);
  }
  void FindFaults(MatrixView<const float> x) override {
    device_->FindFaults(x);
  }
  void GatherRows(std::span<const int32_t> rows, MatrixView<const float> x,
                  MatrixView<float> y) override {
    device_->GatherRows(rows, x, y);
  }
  absl::StatusOr<MatrixView<const float>> OnHost(
      MatrixView<const float> x) override {
    return device_->OnHost(x);
  }

 private:
  const std::unique_ptr<Backend> device_;
  int64_t steps_left_;
  bool has_failed_ = false;
};

}  // namespace flash

#endif  // TESTS_END_TO_END_FAILING_BACKEND_H_
