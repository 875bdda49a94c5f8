// A backend whose operations are done when they return, so that a test can look
// at each.

#ifndef TESTS_KERNELS_EAGER_BACKEND_H_
#define TESTS_KERNELS_EAGER_BACKEND_H_

#include <memory>
#include <string>
#include <utility>

#include "kernels/backend.h"
#include "kernels/check.h"

namespace flash {

class EagerBackend final : public Backend {
 public:
  explicit EagerBackend(std::unique_ptr<Backend> backend)
      : backend_(std::move(backend)), byte_(*backend_->Allocate(1)) {}

  std::string Describe() const override { return backend_->Describe(); }
  bool HasFastBFloat16() const override { return backend_->HasFastBFloat16(); }
  absl::Status Reserve(const Workload& workload) override {
    return backend_->Reserve(workload);
  }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes) override {
    return backend_->Allocate(bytes);
  }
  void Upload(std::byte* to, const void* from, size_t bytes) override {
    backend_->Upload(to, from, bytes);
    Finish();
  }
  void Copy(std::byte* to, const std::byte* from, size_t bytes) override {
    backend_->Copy(to, from, bytes);
    Finish();
  }
  void Download(void* to, const std::byte* from, size_t bytes) override {
    backend_->Download(to, from, bytes);
  }
  void Zero(std::byte* data, size_t bytes) override {
    backend_->Zero(data, bytes);
    Finish();
  }
  absl::StatusOr<std::unique_ptr<Dense>> MakeDense(
      const DenseSource& source) override {
    return backend_->MakeDense(source);
  }
  void BeginStep(const StepRows& rows) override { backend_->BeginStep(rows); }
  absl::Status EndStep(std::span<uint8_t> faults) override {
    return backend_->EndStep(faults);
  }
  int64_t StepBytes() const override { return backend_->StepBytes(); }

  void Embed(const Embedding& embedding, MatrixView<float> x) override {
    backend_->Embed(embedding, x);
    Finish();
  }
  void Normalize(const Norm& norm, MatrixView<const float> x,
                 MatrixView<float> y) override {
    backend_->Normalize(norm, x, y);
    Finish();
  }
  void ShiftTokens(const LayerState& state, MatrixView<float> y) override {
    backend_->ShiftTokens(state, y);
    Finish();
  }
  void RotaryAngles(const Rotary& rotary, MatrixView<float> cos,
                    MatrixView<float> sin) override {
    backend_->RotaryAngles(rotary, cos, sin);
    Finish();
  }
  void Project(const Dense& dense, MatrixView<const float> x,
               Activation activation, MatrixView<float> y) override {
    backend_->Project(dense, x, activation, y);
    Finish();
  }
  void ProjectAndAdd(const Dense& dense, MatrixView<const float> x,
                     MatrixView<float> y) override {
    backend_->ProjectAndAdd(dense, x, y);
    Finish();
  }
  void AppendHeads(const Attention& attention, const LayerState& state,
                   MatrixView<const float> cos, MatrixView<const float> sin,
                   const HeadRows& heads) override {
    backend_->AppendHeads(attention, state, cos, sin, heads);
    Finish();
  }
  void Attend(const Attention& attention, const LayerState& state,
              const HeadRows& heads, std::span<const Fold> put_off,
              MatrixView<float> gated) override {
    backend_->Attend(attention, state, heads, put_off, gated);
    Finish();
  }
  void FoldChunks(const Attention& attention, const LayerState& state,
                  std::span<const Fold> folds) override {
    backend_->FoldChunks(attention, state, folds);
    Finish();
  }
  void FindFaults(MatrixView<const float> x) override {
    backend_->FindFaults(x);
    Finish();
  }
  void GatherRows(std::span<const int32_t> rows, MatrixView<const float> x,
                  MatrixView<float> y) override {
    backend_->GatherRows(rows, x, y);
    Finish();
  }
  absl::StatusOr<MatrixView<const float>> OnHost(
      MatrixView<const float> x) override {
    return backend_->OnHost(x);
  }

 private:
  // What is downloaded is as all operations before have left it.
  void Finish() {
    std::byte seen;
    backend_->Download(&seen, byte_->data(), 1);
  }

  const std::unique_ptr<Backend> backend_;
  const std::unique_ptr<Buffer> byte_;
};

}  // namespace flash

#endif  // TESTS_KERNELS_EAGER_BACKEND_H_
