// Dense products by cuBLASLt.
//
// One algorithm is chosen for a matrix at load, for steps of kTypicalRows rows,
// and serves steps of every size. It may divide no sum among blocks of threads
// (no split-K, no workspace). So a row's products should not depend on the rows
// beside it: how an algorithm walks the depth does not follow from how many
// columns there are. cuBLAS promises that for one and the same call only; the
// tests of alone against in a crowd must be run on each new card and version.

#ifndef KERNELS_CUDA_DENSE_H_
#define KERNELS_CUDA_DENSE_H_

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cuda/cuda_handles.h"
#include "kernels/tensor.h"

namespace flash::cuda {

// What a product multiplies by: weights [outputs, depth] of one type.
struct ProductShape {
  int64_t outputs = 0;
  int64_t inputs = 0;
  DataType type = DataType::kFloat32;

  // Padded for all but float32, whose inputs come as they are.
  int64_t depth() const;
  int64_t weight_stride() const;  // numbers from one output to the next

  bool operator==(const ProductShape&) const = default;
};

// The operands of one product, all on the card.
struct ProductOperands {
  const void* weights = nullptr;
  const void* x = nullptr;  // [rows, depth] of the weights' type
  int64_t x_stride = 0;
  int64_t rows = 0;
  // float32, or int32 sums of int8 products.
  void* y = nullptr;
  int64_t y_stride = 0;
  enum class Into { kStore, kAdd } into = Into::kStore;  // kAdd: not for int8

  bool operator==(const ProductOperands&) const = default;
};

class DenseProduct {
 public:
  // Chooses the algorithm. INTERNAL if cuBLASLt has none. bias: [outputs], not
  // for int8. REQUIRES: `blas` and `bias` outlive the product.
  static absl::StatusOr<std::unique_ptr<DenseProduct>> Create(
      cublasLtHandle_t blas, const ProductShape& shape, const float* bias);

  const ProductShape& shape() const { return shape_; }

  // y = W x + bias, or y += W x + bias; int8: y = W x, without a bias.
  cublasStatus_t Run(const ProductOperands& operands,
                     cudaStream_t stream) const;

 private:
  // The rows of a step that bandwidth matters for.
  static constexpr int64_t kTypicalRows = 64;

  DenseProduct(cublasLtHandle_t blas, const ProductShape& shape)
      : blas_(blas), shape_(shape) {}

  cublasStatus_t Describe(const float* bias);
  cublasStatus_t ChooseAlgorithm();

  const cublasLtHandle_t blas_;
  const ProductShape shape_;
  MatmulDesc desc_;
  MatrixLayout weights_;
  cublasLtMatmulAlgo_t algorithm_ = {};
};

}  // namespace flash::cuda

#endif  // KERNELS_CUDA_DENSE_H_
