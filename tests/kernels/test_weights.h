// A random weight matrix in a checkpoint's memory, in segments that begin at
// any address.

#ifndef TESTS_KERNELS_TEST_WEIGHTS_H_
#define TESTS_KERNELS_TEST_WEIGHTS_H_

#include <cstdint>
#include <vector>

#include "tests/kernels/test_numbers.h"

namespace flash {

class TestWeights {
 public:
  struct Shape {
    std::vector<int64_t> segments;  // the rows of each
    int64_t cols = 0;
    DataType type = DataType::kFloat32;
    DataType stored = DataType::kFloat32;
    bool has_bias = false;
  };

  // One output that is not padding.
  struct Output {
    int64_t column = 0;           // of the result
    std::vector<double> weights;  // as they are stored, see RoundedTo()
    double bias = 0;
  };

  TestWeights(const Shape& shape, RandomSource& random) : shape_(shape) {
    for (const int64_t rows : shape.segments) {
      segments_.emplace_back(rows, shape.cols, shape.type, random,
                             /*misaligned=*/1 + 2 * segments_.size());
      for (int64_t row = 0; row < rows && shape.has_bias; ++row) {
        bias_.push_back(static_cast<float>(random.Normal()));
      }
    }
  }

  DenseSource source() const {
    DenseSource source = {.segments = {},
                          .cols = shape_.cols,
                          .type = shape_.type,
                          .stored = shape_.stored,
                          .bias = bias_};
    for (const StoredNumbers& segment : segments_) {
      source.segments.push_back({segment.data(), segment.rows()});
    }
    return source;
  }

  // Sets a weight of the first segment.
  void Set(int64_t row, int64_t col, float weight) {
    segments_.front().Set(row, col, weight);
  }

  std::vector<Output> outputs() const {
    std::vector<Output> outputs;
    int64_t begin = 0;
    for (const StoredNumbers& segment : segments_) {
      for (int64_t row = 0; row < segment.rows(); ++row) {
        Output output = {.column = begin + row, .weights = {}, .bias = 0};
        for (int64_t col = 0; col < shape_.cols; ++col) {
          output.weights.push_back(
              RoundedTo(shape_.stored, segment.At(row, col)));
        }
        if (!bias_.empty()) output.bias = bias_[outputs.size()];
        outputs.push_back(output);
      }
      begin += Padded(segment.rows());
    }
    return outputs;
  }

  int64_t padded_outputs() const {
    int64_t outputs = 0;
    for (const int64_t rows : shape_.segments) outputs += Padded(rows);
    return outputs;
  }

 private:
  const Shape shape_;
  std::vector<StoredNumbers> segments_;
  std::vector<float> bias_;
};

}  // namespace flash

#endif  // TESTS_KERNELS_TEST_WEIGHTS_H_
