// One row of a norm, format step 2.1. Sums have sixteen lanes, joined at the
// end as SumLanes() does.

#include <cmath>

#include "kernels/cpu/kernels.h"

namespace flash::cpu::FLASH_ISA {
namespace {

float MeanOfSquares(const float* x, int64_t cols) {
  F32x16 sum = Zero();
  for (int64_t c = 0; c < cols; c += 16) {
    const F32x16 value = Load(x + c);  // padding is zero
    sum = Fma(value, value, sum);
  }
  return SumLanes(sum) / static_cast<float>(cols);
}

// 1 / the norm's divisor, for scale_norm and rms_norm.
float InverseRms(const Norm& norm, const float* x, int64_t cols) {
  const float mean = MeanOfSquares(x, cols);
  if (norm.eps_mode == Norm::EpsMode::kAdd) {
    return 1.0f / std::sqrt(mean + norm.eps);
  }
  const float rms = std::sqrt(mean);
  return 1.0f / (rms > norm.eps ? rms : norm.eps);
}

void LayerNorm(const Norm& norm, const float* x, int64_t cols, float* y) {
  F32x16 sum = Zero();
  for (int64_t c = 0; c < cols; c += 16) sum = Add(sum, Load(x + c));
  const F32x16 mean = Set1(SumLanes(sum) / static_cast<float>(cols));
  F32x16 squares = Zero();
  for (int64_t c = 0; c < cols; c += 16) {
    const int lanes = cols - c < 16 ? static_cast<int>(cols - c) : 16;
    const F32x16 centred = FirstLanes(Sub(Load(x + c), mean), lanes);
    squares = Fma(centred, centred, squares);
  }
  const float variance = SumLanes(squares) / static_cast<float>(cols);
  const F32x16 inverse = Set1(1.0f / std::sqrt(variance + norm.eps));
  for (int64_t c = 0; c < cols; c += 16) {
    const F32x16 unit = Mul(Sub(Load(x + c), mean), inverse);
    // Weight and bias are zero in the padding, and so is the result.
    Store(y + c, Fma(unit, Load(norm.weight + c), Load(norm.bias + c)));
  }
}

}  // namespace

void Normalize(const Norm& norm, const float* x, int64_t cols, float* y) {
  switch (norm.type) {
    case Norm::Type::kNone:
      for (int64_t c = 0; c < cols; c += 16) Store(y + c, Load(x + c));
      break;
    case Norm::Type::kScale: {
      const F32x16 scale = Set1(InverseRms(norm, x, cols) * norm.weight[0]);
      for (int64_t c = 0; c < cols; c += 16) {
        Store(y + c, Mul(Load(x + c), scale));
      }
      break;
    }
    case Norm::Type::kRms: {
      const F32x16 scale = Set1(InverseRms(norm, x, cols));
      for (int64_t c = 0; c < cols; c += 16) {
        Store(y + c, Mul(Mul(Load(x + c), scale), Load(norm.weight + c)));
      }
      break;
    }
    case Norm::Type::kLayer:
      LayerNorm(norm, x, cols, y);
      break;
  }
}

bool AllFiniteRow(const float* x, int64_t padded_cols) {
  bool finite = true;
  for (int64_t c = 0; c < padded_cols; c += 16)
    finite &= AllFinite(Load(x + c));
  return finite;
}

}  // namespace flash::cpu::FLASH_ISA
