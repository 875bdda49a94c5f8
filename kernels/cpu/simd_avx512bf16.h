// AVX-512 with the bfloat16 instructions: products of bfloat16 weights round
// their inputs to bfloat16, flush denormals and add the odd element first.

#ifndef KERNELS_CPU_SIMD_AVX512BF16_H_
#define KERNELS_CPU_SIMD_AVX512BF16_H_

#include <cstring>

#include "kernels/cpu/simd_avx512.h"

namespace flash::cpu::FLASH_ISA {

struct InputPair {
  uint32_t bits;  // two bfloat16, the even one in the low half
};

struct WeightPairs {
  __m512bh v;
};

inline void PackInputs(const float* x, int64_t n, InputPair* out) {
  int64_t k = 0;
  for (; k + 32 <= n; k += 32) {
    const __m512bh pairs = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + k + 16),
                                               _mm512_loadu_ps(x + k));
    std::memcpy(out + k / 2, &pairs, sizeof(pairs));
  }
  for (; k < n; k += 2) {
    const __m128 two = _mm_setr_ps(x[k], k + 1 < n ? x[k + 1] : 0, 0, 0);
    const __m128bh pair = _mm_cvtneps_pbh(two);
    std::memcpy(out + k / 2, &pair, sizeof(InputPair));
  }
}

inline WeightPairs LoadPairs(const uint16_t* p) {
  WeightPairs pairs;
  std::memcpy(&pairs.v, p, sizeof(pairs.v));
  return pairs;
}

inline F32x16 PairFma(WeightPairs weights, InputPair input, F32x16 sum) {
  const __m512i broadcast = _mm512_set1_epi32(static_cast<int>(input.bits));
  return {_mm512_dpbf16_ps(sum.v, weights.v, (__m512bh)broadcast)};
}

}  // namespace flash::cpu::FLASH_ISA

#endif  // KERNELS_CPU_SIMD_AVX512BF16_H_
