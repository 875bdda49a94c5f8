// AVX-512 with the bfloat16 and the int8 instructions: products of bfloat16
// weights round their inputs to bfloat16, flush denormals and add the odd
// element first.

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

// The instruction multiplies unsigned inputs by signed weights, so inputs have
// 128 added, and the sums begin with what takes that away again. It wraps
// around, and the true sum is an int32: it does not matter that what lies
// between may not be.
struct InputQuad {
  uint32_t bits;  // four uint8
};

struct WeightQuads {
  __m512i v;
};

inline void StoreQuads(InputQuad* out, F32x16 x) {
  const __m128i bytes = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x.v));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out),
                   _mm_xor_si128(bytes, _mm_set1_epi8(-128)));
}

inline I32x16 FirstSums(const int32_t* offset) {
  I32x16 sums;
  std::memcpy(&sums.v, offset, sizeof(sums.v));
  return sums;
}

inline WeightQuads LoadQuads(const int8_t* p) {
  return {_mm512_loadu_si512(p)};
}

inline I32x16 AddQuads(WeightQuads weights, InputQuad input, I32x16 sum) {
  const __m512i broadcast = _mm512_set1_epi32(static_cast<int>(input.bits));
  return {
      (I32x16::Lanes)_mm512_dpbusd_epi32((__m512i)sum.v, broadcast, weights.v)};
}

}  // namespace flash::cpu::FLASH_ISA

#endif  // KERNELS_CPU_SIMD_AVX512BF16_H_
