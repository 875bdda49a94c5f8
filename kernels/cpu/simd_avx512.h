// Sixteen float32 lanes in one AVX-512 register. Each simd_*.h defines the same
// names for one instruction set, inside that set's namespace: simd.h explains
// them.

#ifndef KERNELS_CPU_SIMD_AVX512_H_
#define KERNELS_CPU_SIMD_AVX512_H_

#include <immintrin.h>

#include <cstdint>

namespace flash::cpu::FLASH_ISA {

constexpr int kTileRows = 6;
constexpr int kTileVectors = 4;

struct F32x16 {
  __m512 v;
};

inline F32x16 Zero() { return {_mm512_setzero_ps()}; }
inline F32x16 Set1(float x) { return {_mm512_set1_ps(x)}; }
inline F32x16 Load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void Store(float* p, F32x16 x) { _mm512_storeu_ps(p, x.v); }

inline F32x16 Add(F32x16 a, F32x16 b) { return {_mm512_add_ps(a.v, b.v)}; }
inline F32x16 Sub(F32x16 a, F32x16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline F32x16 Mul(F32x16 a, F32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline F32x16 Div(F32x16 a, F32x16 b) { return {_mm512_div_ps(a.v, b.v)}; }
inline F32x16 Max(F32x16 a, F32x16 b) { return {_mm512_max_ps(a.v, b.v)}; }
inline F32x16 Min(F32x16 a, F32x16 b) { return {_mm512_min_ps(a.v, b.v)}; }
inline F32x16 Fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}

inline F32x16 FirstLanes(F32x16 x, int n) {
  return {_mm512_maskz_mov_ps(static_cast<__mmask16>((1u << n) - 1), x.v)};
}

inline F32x16 Round(F32x16 x) {
  return {
      _mm512_roundscale_ps(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}

inline F32x16 PowerOfTwo(F32x16 n) {
  const __m512i exponent =
      _mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23))};
}

inline float SumLanes(F32x16 x) {
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(x.v),
                                    _mm512_extractf32x8_ps(x.v, 1));
  const __m128 quarter =
      _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  const __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
}

inline F32x16 Load(const uint16_t* p) {
  const __m256i halves =
      _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16))};
}

// Rounds to the nearest even bfloat16. A NaN stays one.
inline void Store(uint16_t* p, F32x16 x) {
  const __m512i bits = _mm512_castps_si512(x.v);
  const __m512i odd =
      _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded =
      _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __mmask16 finite = _mm512_cmp_ps_mask(_mm512_sub_ps(x.v, x.v),
                                              _mm512_setzero_ps(), _CMP_EQ_OQ);
  const __m512i chosen = _mm512_mask_mov_epi32(bits, finite, rounded);
  const __m512i quiet =
      _mm512_mask_or_epi32(chosen, _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q),
                           chosen, _mm512_set1_epi32(0x400000));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtepi32_epi16(_mm512_srli_epi32(quiet, 16)));
}

// Not __m512i, which is eight numbers to the compiler: it would keep each sum
// twice over, once as these and once as those.
struct I32x16 {
  using Lanes = int32_t __attribute__((vector_size(64)));
  Lanes v;
};
inline F32x16 ToFloat(I32x16 x) { return {_mm512_cvtepi32_ps((__m512i)x.v)}; }

inline bool AllFinite(F32x16 x) {
  return _mm512_cmp_ps_mask(_mm512_sub_ps(x.v, x.v), _mm512_setzero_ps(),
                            _CMP_EQ_OQ) == 0xffff;
}

}  // namespace flash::cpu::FLASH_ISA

#endif  // KERNELS_CPU_SIMD_AVX512_H_
