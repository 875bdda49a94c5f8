#include "tests/kernels/test_numbers.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "gtest/gtest.h"
#include "tests/kernels/test_memory.h"

namespace flash {
namespace {

// A bfloat16 is a float32 whose significand has eight bits.
float NearestBFloat16(float number) {
  if (!std::isfinite(number)) return number;
  int exponent;
  const double significand = std::frexp(number, &exponent);
  return static_cast<float>(
      std::ldexp(std::nearbyint(significand * 256), exponent - 8));
}

}  // namespace

float RoundedTo(DataType type, float number) {
  switch (type) {
    case DataType::kFloat32:
      return number;
    case DataType::kFloat16:
      return static_cast<float>(static_cast<_Float16>(number));
    case DataType::kBFloat16:
      return NearestBFloat16(number);
    case DataType::kInt8:  // has no scale by itself
      return number;
  }
  return 0;
}

Lines::Lines(size_t bytes, uint32_t pattern)
    : size_((bytes + 63) / 64 * 64), bytes_(AllocateTestMemory(size_)) {
  for (size_t at = 0; at < size_; at += sizeof(pattern)) {
    std::memcpy(data() + at, &pattern, sizeof(pattern));
  }
}

StoredNumbers::StoredNumbers(int64_t rows, int64_t cols, DataType type,
                             RandomSource& random, size_t misaligned)
    : rows_(rows),
      cols_(cols),
      type_(type),
      misaligned_(misaligned),
      bytes_(AllocateTestMemory(misaligned + rows * cols * SizeOf(type))) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      Set(row, col, static_cast<float>(random.Normal()));
    }
  }
}

std::byte* StoredNumbers::Address(int64_t row, int64_t col) {
  return bytes_.get() + misaligned_ + (row * cols_ + col) * SizeOf(type_);
}

float StoredNumbers::At(int64_t row, int64_t col) const {
  const std::byte* from = const_cast<StoredNumbers*>(this)->Address(row, col);
  float number = 0;
  if (type_ == DataType::kFloat16) {
    _Float16 half;
    std::memcpy(&half, from, sizeof(half));
    return static_cast<float>(half);
  }
  if (type_ == DataType::kFloat32) {
    std::memcpy(&number, from, sizeof(number));
  } else {  // the upper half of a float32
    std::memcpy(reinterpret_cast<std::byte*>(&number) + 2, from, 2);
  }
  return number;
}

void StoredNumbers::Set(int64_t row, int64_t col, float number) {
  std::byte* to = Address(row, col);
  if (type_ == DataType::kFloat16) {
    const _Float16 half = static_cast<_Float16>(number);
    std::memcpy(to, &half, sizeof(half));
    return;
  }
  number = RoundedTo(type_, number);
  const size_t skipped = sizeof(number) - SizeOf(type_);
  std::memcpy(to, reinterpret_cast<std::byte*>(&number) + skipped,
              SizeOf(type_));
}

Matrix::Matrix(int64_t rows, int64_t cols)
    : rows_(rows),
      cols_(cols),
      lines_(rows * stride() * sizeof(float), kNaNs) {}

Matrix Matrix::Random(int64_t rows, int64_t cols, RandomSource& random) {
  Matrix matrix(rows, cols);
  for (int64_t row = 0; row < rows; ++row) {
    float* numbers = matrix.Row(row);
    for (int64_t col = 0; col < cols; ++col) {
      numbers[col] = static_cast<float>(random.Normal());
    }
    std::fill(numbers + cols, numbers + Padded(cols), 0.0f);
  }
  return matrix;
}

Matrix Matrix::Chosen(const Matrix& from, const std::vector<int>& rows) {
  Matrix matrix(static_cast<int64_t>(rows.size()), from.cols_);
  for (size_t n = 0; n < rows.size(); ++n) {
    std::copy_n(from.Row(rows[n]), Padded(from.cols_), matrix.Row(n));
  }
  return matrix;
}

MatrixView<float> Matrix::view() const {
  float* data = reinterpret_cast<float*>(lines_.data()) + 16;
  return {.data = data, .rows = rows_, .cols = cols_, .row_stride = stride()};
}

std::vector<std::vector<uint32_t>> Matrix::Bits() const {
  std::vector<std::vector<uint32_t>> bits;
  for (int64_t row = 0; row < rows_; ++row) {
    bits.emplace_back(Padded(cols_));
    std::memcpy(bits.back().data(), Row(row), Padded(cols_) * sizeof(float));
  }
  return bits;
}

void Matrix::ExpectZeroPadding() const {
  for (int64_t row = 0; row < rows_; ++row) {
    for (int64_t col = cols_; col < Padded(cols_); ++col) {
      EXPECT_EQ(Row(row)[col], 0) << "row " << row << ", column " << col;
    }
  }
}

void Matrix::ExpectIntact() const {
  const Lines untouched(64, kNaNs);
  for (int64_t row = 0; row < rows_; ++row) {
    EXPECT_EQ(std::memcmp(Row(row) - 16, untouched.data(), 64), 0)
        << "something was written before row " << row;
  }
}

}  // namespace flash
