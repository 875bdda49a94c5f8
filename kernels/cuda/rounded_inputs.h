// The inputs of the next dense product, rounded to the type of its weights:
// where they are, and of which matrix they are.

#ifndef KERNELS_CUDA_ROUNDED_INPUTS_H_
#define KERNELS_CUDA_ROUNDED_INPUTS_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "kernels/backend.h"

namespace flash::cuda {

class RoundedInputs {
 public:
  // `memory`: room for [max_rows, Padded(max_cols)] of two bytes each.
  void SetMemory(std::unique_ptr<Buffer> memory, int64_t max_rows,
                 int64_t max_cols) {
    memory_ = std::move(memory);
    max_rows_ = max_rows;
    max_cols_ = max_cols;
  }

  bool HasRoomFor(MatrixView<const float> x) const {
    return x.rows <= max_rows_ && x.cols <= max_cols_;
  }
  uint16_t* bfloat16() const {
    return reinterpret_cast<uint16_t*>(memory_->data());
  }
  int8_t* int8() const { return reinterpret_cast<int8_t*>(memory_->data()); }

  // Whether the bfloat16 inputs are those of `x`.
  bool Are(MatrixView<const float> x) const {
    return x.data == of_.data && x.cols == of_.cols && x.rows <= of_.rows;
  }
  void Become(MatrixView<const float> x) { of_ = x; }
  void Forget() { of_ = {}; }
  // `y` becomes other numbers.
  void Overwrite(MatrixView<const float> y) {
    const float* const end = of_.data + of_.rows * of_.row_stride;
    if (y.data < end && of_.data < y.data + y.rows * y.row_stride) Forget();
  }

 private:
  std::unique_ptr<Buffer> memory_;
  int64_t max_rows_ = 0;
  int64_t max_cols_ = 0;
  MatrixView<const float> of_;  // no data: of none
};

}  // namespace flash::cuda

#endif  // KERNELS_CUDA_ROUNDED_INPUTS_H_
