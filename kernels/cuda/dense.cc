#include "kernels/cuda/dense.h"

#include "kernels/operands.h"

namespace flash::cuda {
namespace {

cudaDataType_t InputType(DataType type) {
  if (type == DataType::kInt8) return CUDA_R_8I;
  return type == DataType::kBFloat16 ? CUDA_R_16BF : CUDA_R_32F;
}

cudaDataType_t OutputType(DataType type) {
  return type == DataType::kInt8 ? CUDA_R_32I : CUDA_R_32F;
}

// Pedantic: float32 products are products of float32, not of TF32.
cublasComputeType_t ComputeType(DataType type) {
  if (type == DataType::kInt8) return CUBLAS_COMPUTE_32I;
  return type == DataType::kBFloat16 ? CUBLAS_COMPUTE_32F
                                     : CUBLAS_COMPUTE_32F_PEDANTIC;
}

// cuBLAS counts columns where we count rows: a row of ours is one of its
// columns.
MatrixLayout MakeLayout(cudaDataType_t type, int64_t rows, int64_t cols,
                        int64_t row_stride) {
  cublasLtMatrixLayout_t layout = nullptr;
  cublasLtMatrixLayoutCreate(&layout, type, static_cast<uint64_t>(cols),
                             static_cast<uint64_t>(rows), row_stride);
  return MatrixLayout(layout);
}

// Collects the first failure of several calls.
class FirstFailure {
 public:
  void operator()(cublasStatus_t status) {
    if (status_ == CUBLAS_STATUS_SUCCESS) status_ = status;
  }
  cublasStatus_t status() const { return status_; }

 private:
  cublasStatus_t status_ = CUBLAS_STATUS_SUCCESS;
};

}  // namespace

int64_t ProductShape::depth() const {
  return type == DataType::kFloat32 ? inputs : Padded(inputs);
}
int64_t ProductShape::weight_stride() const { return Padded(inputs); }

absl::StatusOr<std::unique_ptr<DenseProduct>> DenseProduct::Create(
    cublasLtHandle_t blas, const ProductShape& shape, const float* bias) {
  std::unique_ptr<DenseProduct> product(new DenseProduct(blas, shape));
  FirstFailure check;
  check(product->Describe(bias));
  check(product->ChooseAlgorithm());
  if (check.status() != CUBLAS_STATUS_SUCCESS) {
    return DeviceError("the choice of a product's algorithm", check.status());
  }
  return product;
}

cublasStatus_t DenseProduct::Describe(const float* bias) {
  FirstFailure check;
  cublasLtMatmulDesc_t desc = nullptr;
  check(cublasLtMatmulDescCreate(&desc, ComputeType(shape_.type),
                                 OutputType(shape_.type)));
  desc_.reset(desc);
  const cublasOperation_t transposed = CUBLAS_OP_T;
  check(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA,
                                       &transposed, sizeof(transposed)));
  if (shape_.type != DataType::kInt8) {
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    check(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                         &epilogue, sizeof(epilogue)));
    check(cublasLtMatmulDescSetAttribute(
        desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias)));
  }
  weights_ = MakeLayout(InputType(shape_.type), shape_.outputs, shape_.depth(),
                        shape_.weight_stride());
  return check.status();
}

cublasStatus_t DenseProduct::ChooseAlgorithm() {
  FirstFailure check;
  cublasLtMatmulPreference_t created = nullptr;
  check(cublasLtMatmulPreferenceCreate(&created));
  const MatmulPreference preference(created);
  const size_t no_bytes = 0;
  check(cublasLtMatmulPreferenceSetAttribute(
      created, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &no_bytes,
      sizeof(no_bytes)));
  const uint32_t no_reduction = CUBLASLT_REDUCTION_SCHEME_NONE;
  check(cublasLtMatmulPreferenceSetAttribute(
      created, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &no_reduction,
      sizeof(no_reduction)));
  const uint32_t a_line = 64;  // where rows begin
  for (const cublasLtMatmulPreferenceAttributes_t operand :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    check(cublasLtMatmulPreferenceSetAttribute(created, operand, &a_line,
                                               sizeof(a_line)));
  }
  const MatrixLayout x = MakeLayout(InputType(shape_.type), kTypicalRows,
                                    shape_.depth(), shape_.weight_stride());
  const MatrixLayout y = MakeLayout(OutputType(shape_.type), kTypicalRows,
                                    shape_.outputs, shape_.outputs);
  cublasLtMatmulHeuristicResult_t result = {};
  int found = 0;
  check(cublasLtMatmulAlgoGetHeuristic(blas_, desc_.get(), weights_.get(),
                                       x.get(), y.get(), y.get(), created, 1,
                                       &result, &found));
  if (found == 0) check(CUBLAS_STATUS_NOT_SUPPORTED);
  algorithm_ = result.algo;
  return check.status();
}

cublasStatus_t DenseProduct::Run(const ProductOperands& operands,
                                 cudaStream_t stream) const {
  const bool integers = shape_.type == DataType::kInt8;
  const MatrixLayout x = MakeLayout(InputType(shape_.type), operands.rows,
                                    shape_.depth(), operands.x_stride);
  const MatrixLayout y = MakeLayout(OutputType(shape_.type), operands.rows,
                                    shape_.outputs, operands.y_stride);
  const float factor = 1;
  const float factor_of_y =
      operands.into == ProductOperands::Into::kAdd ? 1.0f : 0.0f;
  const int32_t integer_factor = 1;
  const int32_t integer_factor_of_y = 0;
  const void* alpha = &factor;
  const void* beta = &factor_of_y;
  if (integers) {
    alpha = &integer_factor;
    beta = &integer_factor_of_y;
  }
  return cublasLtMatmul(
      blas_, desc_.get(), alpha, operands.weights, weights_.get(), operands.x,
      x.get(), beta, operands.y, y.get(), operands.y, y.get(), &algorithm_,
      /*workspace=*/nullptr, /*workspaceSizeInBytes=*/0, stream);
}

}  // namespace flash::cuda
