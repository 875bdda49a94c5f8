// AVX-512 without the bfloat16 and the int8 instructions.

#ifndef KERNELS_CPU_SIMD_AVX512_WIDENED_H_
#define KERNELS_CPU_SIMD_AVX512_WIDENED_H_

#include "kernels/cpu/quads_widened.h"
#include "kernels/cpu/simd_avx512.h"

namespace flash::cpu::FLASH_ISA {

inline F32x16 EvenBFloat16(const uint16_t* p) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16))};
}
inline F32x16 OddBFloat16(const uint16_t* p) {
  return {_mm512_castsi512_ps(
      _mm512_and_si512(_mm512_loadu_si512(p),
                       _mm512_set1_epi32(static_cast<int>(0xffff0000u))))};
}

struct WeightQuads {
  __m512i even, odd;  // of the 64 weights, as int16
};

inline WeightQuads LoadQuads(const int8_t* p) {
  const __m512i bytes = _mm512_loadu_si512(p);
  return {_mm512_srai_epi16(_mm512_slli_epi16(bytes, 8), 8),
          _mm512_srai_epi16(bytes, 8)};
}

inline void StoreQuads(InputQuad* out, F32x16 x) {
  int32_t integers[16];
  _mm512_storeu_si512(integers, _mm512_cvtps_epi32(x.v));
  StoreQuads(out, integers);
}

inline I32x16 FirstSums(const int32_t*) { return I32x16(); }

inline I32x16 AddQuads(WeightQuads weights, InputQuad input, I32x16 sum) {
  const __m512i even =
      _mm512_madd_epi16(weights.even, _mm512_set1_epi32(input.even));
  const __m512i odd =
      _mm512_madd_epi16(weights.odd, _mm512_set1_epi32(input.odd));
  return {sum.v + (I32x16::Lanes)even + (I32x16::Lanes)odd};
}

}  // namespace flash::cpu::FLASH_ISA

#include "kernels/cpu/pairs_widened.h"  // needs EvenBFloat16, OddBFloat16

#endif  // KERNELS_CPU_SIMD_AVX512_WIDENED_H_
