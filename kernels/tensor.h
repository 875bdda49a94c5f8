// Views of memory that somebody else owns. They are as cheap as a pointer, and
// may not be used after that memory is gone.

#ifndef KERNELS_TENSOR_H_
#define KERNELS_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace flash {

// How numbers are stored. Arithmetic is in float32 whatever they are stored in,
// but for int8, which only dense weights are: see DenseSource::stored.
enum class DataType { kFloat32, kFloat16, kBFloat16, kInt8 };

constexpr size_t SizeOf(DataType type) {
  if (type == DataType::kInt8) return 1;
  return type == DataType::kFloat32 ? 4 : 2;
}

// Rows of T, `row_stride` elements from one row to the next.
template <typename T>
struct MatrixView {
  T* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_stride = 0;

  constexpr T* Row(int64_t row) const { return data + row * row_stride; }

  // The first `n` rows.
  MatrixView First(int64_t n) const { return {data, n, cols, row_stride}; }

  // A view through which nothing can be written.
  template <typename C>
  requires(std::is_same_v<C, const T> && !std::is_const_v<T>)
  operator MatrixView<C>() const {  // NOLINT: implicit, as for pointers
    return {data, rows, cols, row_stride};
  }

  bool operator==(const MatrixView&) const = default;
};

}  // namespace flash

#endif  // KERNELS_TENSOR_H_
