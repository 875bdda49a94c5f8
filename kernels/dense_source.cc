#include "kernels/dense_source.h"

#include "absl/strings/str_cat.h"
#include "kernels/check.h"

namespace flash {

int64_t PaddedOutputs(const DenseSource& source) {
  int64_t outputs = 0;
  for (const WeightRows& segment : source.segments) {
    outputs += Padded(segment.rows);
  }
  return outputs;
}

std::vector<const std::byte*> OutputRows(const DenseSource& source) {
  std::vector<const std::byte*> rows;
  const size_t row_bytes = source.cols * SizeOf(source.type);
  for (const WeightRows& segment : source.segments) {
    for (int64_t row = 0; row < Padded(segment.rows); ++row) {
      rows.push_back(row < segment.rows ? segment.data + row * row_bytes
                                        : nullptr);
    }
  }
  return rows;
}

std::vector<float> PaddedBias(const DenseSource& source) {
  std::vector<float> bias(PaddedOutputs(source), 0);
  if (source.bias.empty()) return bias;
  size_t from = 0;
  int64_t to = 0;
  for (const WeightRows& segment : source.segments) {
    for (int64_t row = 0; row < segment.rows; ++row) {
      bias[to + row] = source.bias[from++];
    }
    to += Padded(segment.rows);
  }
  FLASH_CHECK(from == source.bias.size());
  return bias;
}

absl::Status CheckDepth(const DenseSource& source) {
  if (source.stored != DataType::kInt8 || source.cols <= kMaxInt8Inputs) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("it has ", source.cols, " inputs; int8 weights may have ",
                   kMaxInt8Inputs));
}

absl::Status WeightIsNotFinite() {
  return absl::InvalidArgumentError("a weight is not a finite number");
}

}  // namespace flash
