// AVX-512 without the bfloat16 instructions.

#ifndef KERNELS_CPU_SIMD_AVX512_WIDENED_H_
#define KERNELS_CPU_SIMD_AVX512_WIDENED_H_

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

}  // namespace flash::cpu::FLASH_ISA

#include "kernels/cpu/pairs_widened.h"  // needs the two above

#endif  // KERNELS_CPU_SIMD_AVX512_WIDENED_H_
