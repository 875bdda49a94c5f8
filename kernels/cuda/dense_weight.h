// A weight matrix as the CUDA products read it.

#ifndef KERNELS_CUDA_DENSE_WEIGHT_H_
#define KERNELS_CUDA_DENSE_WEIGHT_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/dense.h"
#include "kernels/dense_source.h"

namespace flash::cuda {

// Where the parts of a weight matrix stand in its memory: the weights as
// [outputs, Padded(inputs)] of the type that is stored, zeros where there is no
// output or no input, then [outputs] biases, then [outputs] scales of int8.
struct DenseParts {
  explicit DenseParts(const DenseSource& source);

  int64_t outputs = 0;
  int64_t row_bytes = 0;
  size_t bias = 0;    // bytes from the beginning
  size_t scales = 0;  // the end, but for int8
  size_t size = 0;
};

// The bytes of `source` in this order, packed. INVALID_ARGUMENT if a weight is
// not finite, or becomes infinite in the type that is stored; or if int8
// weights have more than kMaxInt8Inputs inputs.
absl::StatusOr<std::vector<std::byte>> PackWeights(const DenseSource& source);

class DenseWeight final : public Dense {
 public:
  // `memory` holds what PackWeights() returned, on the card.
  DenseWeight(const DenseSource& source, std::unique_ptr<Buffer> memory,
              std::unique_ptr<DenseProduct> product)
      : Dense(PaddedOutputs(source), source.cols, memory->size()),
        type_(source.stored),
        parts_(source),
        memory_(std::move(memory)),
        product_(std::move(product)) {}

  DataType type() const { return type_; }
  const std::byte* weights() const { return memory_->data(); }
  const float* bias() const { return At(parts_.bias); }      // [outputs]
  const float* scales() const { return At(parts_.scales); }  // [outputs], int8
  const DenseProduct& product() const { return *product_; }

 private:
  const float* At(size_t bytes) const {
    return reinterpret_cast<const float*>(memory_->data() + bytes);
  }

  const DataType type_;
  const DenseParts parts_;
  const std::unique_ptr<Buffer> memory_;
  const std::unique_ptr<DenseProduct> product_;
};

}  // namespace flash::cuda

#endif  // KERNELS_CUDA_DENSE_WEIGHT_H_
