// A weight matrix as the CPU kernels read it.

#ifndef KERNELS_CPU_DENSE_WEIGHT_H_
#define KERNELS_CPU_DENSE_WEIGHT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/thread_pool.h"

namespace flash::cpu {

// Weights stand in panels of kPanel outputs, one order for 1 row and for 256:
// float32 [panel][input][kPanel], bfloat16 [panel][input / 2][kPanel][2], int8
// [panel][input / 4][kPanel][4] with an Int8PanelHead before each panel; zeros
// where there is no output or no input.
class DenseWeight final : public Dense {
 public:
  // `memory` holds the panels, as PackPanels() writes them.
  DenseWeight(const DenseSource& source, std::unique_ptr<Buffer> memory);

  DataType type() const { return type_; }
  const std::byte* panels() const { return memory_->data(); }
  const float* bias() const { return bias_.data(); }  // [outputs]
  int64_t num_panels() const;

 private:
  const DataType type_;
  const std::unique_ptr<Buffer> memory_;
  std::vector<float> bias_;
};

// The bytes of the panels of `source`.
size_t PanelBytes(const DenseSource& source);

// Writes the panels of `source` to `out`, which is zero before, with all of the
// pool's threads. INVALID_ARGUMENT if a weight is not finite, or becomes
// infinite in the type that is stored; or if int8 weights have more than
// kMaxInt8Inputs inputs.
absl::Status PackPanels(const DenseSource& source, ThreadPool& pool,
                        std::byte* out);

}  // namespace flash::cpu

#endif  // KERNELS_CPU_DENSE_WEIGHT_H_
