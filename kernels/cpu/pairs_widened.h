// Products of bfloat16 weights where there is no instruction for them: the
// weights are widened, the inputs stay float32, the even element goes first.

#ifndef KERNELS_CPU_PAIRS_WIDENED_H_
#define KERNELS_CPU_PAIRS_WIDENED_H_

#include <cstdint>

namespace flash::cpu::FLASH_ISA {

struct InputPair {
  float even;
  float odd;
};

struct WeightPairs {
  F32x16 even;
  F32x16 odd;
};

inline void PackInputs(const float* x, int64_t n, InputPair* out) {
  for (int64_t k = 0; k + 1 < n; k += 2) *out++ = {x[k], x[k + 1]};
  if (n % 2 != 0) *out = {x[n - 1], 0};
}

inline WeightPairs LoadPairs(const uint16_t* p) {
  return {EvenBFloat16(p), OddBFloat16(p)};
}

inline F32x16 PairFma(WeightPairs weights, InputPair input, F32x16 sum) {
  sum = Fma(Set1(input.even), weights.even, sum);
  return Fma(Set1(input.odd), weights.odd, sum);
}

}  // namespace flash::cpu::FLASH_ISA

#endif  // KERNELS_CPU_PAIRS_WIDENED_H_
