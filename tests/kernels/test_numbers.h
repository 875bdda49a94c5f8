// Numbers in memory as backend.h and checkpoints have them, with NaN where
// nobody may look.

#ifndef TESTS_KERNELS_TEST_NUMBERS_H_
#define TESTS_KERNELS_TEST_NUMBERS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/operands.h"
#include "kernels/tensor.h"
#include "tests/reference/random_source.h"

namespace flash {

// What memory is filled with that holds nothing: read as any type of number,
// it is not finite.
inline constexpr uint32_t kNaNs = 0xffffffff;
inline constexpr uint32_t kInfinities = 0x7f800000;          // of float32
inline constexpr uint32_t kBFloat16Infinities = 0x7f807f80;  // pairs of them

// The nearest number that `type` has, ties to even. For int8 it is
// the number itself: how it is rounded depends on others.
float RoundedTo(DataType type, float number);

// Memory that begins on a 64-byte line, and ends where its last line does.
class Lines {
 public:
  Lines(size_t bytes, uint32_t pattern);
  std::byte* data() const { return bytes_.get(); }
  size_t size() const { return size_; }

 private:
  size_t size_;
  std::shared_ptr<std::byte[]> bytes_;
};

// Numbers as a checkpoint stores them: [rows, cols] without padding, beginning
// `misaligned` bytes behind an aligned address. Random ones at first.
class StoredNumbers {
 public:
  StoredNumbers(int64_t rows, int64_t cols, DataType type, RandomSource& random,
                size_t misaligned = 0);

  const std::byte* data() const { return bytes_.get() + misaligned_; }
  DataType type() const { return type_; }
  int64_t rows() const { return rows_; }
  float At(int64_t row, int64_t col) const;
  void Set(int64_t row, int64_t col, float number);

 private:
  std::byte* Address(int64_t row, int64_t col);

  const int64_t rows_;
  const int64_t cols_;
  const DataType type_;
  const size_t misaligned_;
  std::shared_ptr<std::byte[]> bytes_;
};

// Rows of Padded(cols) numbers, each on a line. Before each row lies a line of
// NaN that nobody may read or write.
class Matrix {
 public:
  // All NaN, padding too: a result must overwrite everything.
  Matrix(int64_t rows, int64_t cols);
  // Numbers around 0, and zeros in the padding.
  static Matrix Random(int64_t rows, int64_t cols, RandomSource& random);
  // The rows of `from` that `rows` names.
  static Matrix Chosen(const Matrix& from, const std::vector<int>& rows);

  MatrixView<float> view() const;
  float* Row(int64_t row) const { return view().Row(row); }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }

  // Each row's bits, padding included.
  std::vector<std::vector<uint32_t>> Bits() const;

  void ExpectZeroPadding() const;
  // That nothing was written between the rows.
  void ExpectIntact() const;

 private:
  int64_t stride() const { return Padded(cols_) + 16; }

  int64_t rows_;
  int64_t cols_;
  Lines lines_;
};

}  // namespace flash

#endif  // TESTS_KERNELS_TEST_NUMBERS_H_
