// Products as cuBLASLt makes them, for the cases that kernels/cuda has: a is
// transposed, b is not, c is d. What the library would refuse is refused here
// too, and memory that the product may not touch ends the process.

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/check.h"
#include "tests/cuda_emulator/machine.h"
#include "tests/cuda_emulator/memory.h"
#include "tests/cuda_emulator/stream.h"

struct cublasLtContext {};

struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t transposed_a = CUBLAS_OP_N;
  cublasOperation_t transposed_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
};

struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType type;
  int64_t rows;
  int64_t cols;
  int64_t stride;  // from one column to the next

  int64_t size() const {
    return type == CUDA_R_8I ? 1 : type == CUDA_R_16BF ? 2 : 4;
  }
  int64_t bytes() const { return ((cols - 1) * stride + rows) * size(); }
};

struct cublasLtMatmulPreferenceOpaque_t {
  uint64_t workspace_bytes = 0;
  uint32_t reduction_schemes = ~0u;
  // Of the addresses of a, b, c and d, in bytes.
  std::array<uint32_t, 4> alignments = {256, 256, 256, 256};
};

namespace {

using Desc = cublasLtMatmulDescOpaque_t;
using Layout = cublasLtMatrixLayoutOpaque_t;

// Copies an attribute's value, if it has the right size.
template <typename T>
cublasStatus_t Set(T& to, const void* value, size_t bytes) {
  if (bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, value, sizeof(T));
  return CUBLAS_STATUS_SUCCESS;
}

struct Shapes {
  Desc desc;
  Layout a, b, d;

  bool integers() const { return a.type == CUDA_R_8I; }

  bool AreConsistent() const {
    return a.stride >= a.rows && b.stride >= b.rows && d.stride >= d.rows &&
           a.rows == b.rows && a.cols == d.rows && b.cols == d.cols;
  }

  // The combinations of cuBLASLt's tables that are used.
  bool AreSupported() const {
    if (desc.transposed_a != CUBLAS_OP_T || desc.transposed_b != CUBLAS_OP_N ||
        a.type != b.type) {
      return false;
    }
    if (integers()) {
      const bool fours = a.rows % 4 == 0 && d.rows % 4 == 0 &&
                         a.stride % 4 == 0 && b.stride % 4 == 0;
      return desc.compute == CUBLAS_COMPUTE_32I && desc.scale == CUDA_R_32I &&
             d.type == CUDA_R_32I &&
             desc.epilogue == CUBLASLT_EPILOGUE_DEFAULT && fours;
    }
    const bool floats = a.type == CUDA_R_32F || a.type == CUDA_R_16BF;
    return floats && desc.compute != CUBLAS_COMPUTE_32I &&
           desc.scale == CUDA_R_32F && d.type == CUDA_R_32F;
  }

  cublasStatus_t Check() const {
    if (!AreConsistent()) return CUBLAS_STATUS_INVALID_VALUE;
    return AreSupported() ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
  }
};

float Number(const Layout& layout, const void* data, int64_t row, int64_t col) {
  const int64_t at = col * layout.stride + row;
  if (layout.type == CUDA_R_32F) return static_cast<const float*>(data)[at];
  const uint32_t bits = static_cast<const uint16_t*>(data)[at];
  const uint32_t widened = bits << 16;
  float number;
  std::memcpy(&number, &widened, sizeof(number));
  return number;
}

struct Product {
  Shapes shapes;
  const void* a;
  const void* b;
  void* d;
  float alpha, beta;
  int32_t integer_alpha, integer_beta;

  void Run() const {
    for (int64_t col = 0; col < shapes.d.cols; ++col) {
      for (int64_t row = 0; row < shapes.d.rows; ++row) {
        const int64_t at = col * shapes.d.stride + row;
        if (shapes.integers()) {
          int32_t& y = static_cast<int32_t*>(d)[at];
          y = integer_alpha * IntegerSum(row, col) +
              (integer_beta == 0 ? 0 : integer_beta * y);
        } else {
          float& y = static_cast<float*>(d)[at];
          const float sum = alpha * Sum(row, col);
          y = (beta == 0 ? sum : std::fma(beta, y, sum)) + Bias(row);
        }
      }
    }
  }

  float Sum(int64_t row, int64_t col) const {
    float sum = 0;
    for (int64_t k = 0; k < shapes.a.rows; ++k) {
      sum = std::fma(Number(shapes.a, a, k, row), Number(shapes.b, b, k, col),
                     sum);
    }
    return sum;
  }

  int32_t IntegerSum(int64_t row, int64_t col) const {
    const auto* x = static_cast<const int8_t*>(a) + row * shapes.a.stride;
    const auto* y = static_cast<const int8_t*>(b) + col * shapes.b.stride;
    int32_t sum = 0;
    for (int64_t k = 0; k < shapes.a.rows; ++k) sum += x[k] * y[k];
    return sum;
  }

  float Bias(int64_t row) const {
    return shapes.desc.epilogue == CUBLASLT_EPILOGUE_BIAS
               ? static_cast<const float*>(shapes.desc.bias)[row]
               : 0;
  }
};

// A matrix that lies where a card can reach it, on an address that the
// algorithm was chosen for.
void CheckOperand(const void* data, const Layout& layout, uint64_t alignment) {
  FLASH_CHECK(cuda_emulator::IsAllocated(data, layout.bytes()));
  FLASH_CHECK(reinterpret_cast<uintptr_t>(data) % alignment == 0);
}

}  // namespace

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    default:
      return "a status that the emulator has no name for";
  }
}

size_t cublasLtGetVersion() { return CUDART_VERSION * size_t{10}; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  const cuda_emulator::Call call;
  if (call.error() != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc,
                                        cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *desc = new Desc{.compute = compute, .scale = scale};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(
    cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
    const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return Set(desc->transposed_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return Set(desc->transposed_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return Set(desc->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return Set(desc->bias, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout,
                                          cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t stride) {
  *layout = new Layout{.type = type,
                       .rows = static_cast<int64_t>(rows),
                       .cols = static_cast<int64_t>(cols),
                       .stride = stride};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(
    cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(
    cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t preference,
    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
    size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return Set(preference->workspace_bytes, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return Set(preference->reduction_schemes, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return Set(
          preference->alignments[attribute -
                                 CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
          value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
    cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int wanted,
    cublasLtMatmulHeuristicResult_t* results, int* found) {
  const cuda_emulator::Call call;
  if (call.error() != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
  const Shapes shapes = {*desc, *a, *b, *d};
  const cublasStatus_t status = shapes.Check();
  *found = status == CUBLAS_STATUS_SUCCESS && wanted > 0 ? 1 : 0;
  if (*found == 1) {
    *results = {};
    std::copy(preference->alignments.begin(), preference->alignments.end(),
              results->algo.data);
  }
  FLASH_CHECK(c->type == d->type);
  return status;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                              const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void*,
                              size_t, cudaStream_t stream) {
  const cuda_emulator::Call call;
  if (call.error() != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
  FLASH_CHECK(c == d && algorithm != nullptr);
  Product product = {.shapes = {*desc, *a_layout, *b_layout, *d_layout},
                     .a = a,
                     .b = b,
                     .d = d,
                     .alpha = 0,
                     .beta = 0,
                     .integer_alpha = 0,
                     .integer_beta = 0};
  const cublasStatus_t status = product.shapes.Check();
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  CheckOperand(a, *a_layout, algorithm->data[0]);
  CheckOperand(b, *b_layout, algorithm->data[1]);
  CheckOperand(d, *d_layout, algorithm->data[3]);
  if (product.shapes.integers()) {
    product.integer_alpha = *static_cast<const int32_t*>(alpha);
    product.integer_beta = *static_cast<const int32_t*>(beta);
  } else {
    product.alpha = *static_cast<const float*>(alpha);
    product.beta = *static_cast<const float*>(beta);
  }
  if (desc->epilogue == CUBLASLT_EPILOGUE_BIAS) {
    FLASH_CHECK(
        cuda_emulator::IsAllocated(desc->bias, d_layout->rows * sizeof(float)));
  }
  cuda_emulator::Put(
      stream == nullptr ? cuda_emulator::DefaultStream() : stream,
      [product] { product.Run(); });
  return CUBLAS_STATUS_SUCCESS;
}
