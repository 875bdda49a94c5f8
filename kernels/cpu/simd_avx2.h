// Sixteen float32 lanes in two AVX2 registers.

#ifndef KERNELS_CPU_SIMD_AVX2_H_
#define KERNELS_CPU_SIMD_AVX2_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/quads_widened.h"

namespace flash::cpu::FLASH_ISA {

constexpr int kTileRows = 3;
constexpr int kTileVectors = 2;

struct F32x16 {
  __m256 lo, hi;
};

inline F32x16 Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline F32x16 Set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline F32x16 Load(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
inline void Store(float* p, F32x16 x) {
  _mm256_storeu_ps(p, x.lo);
  _mm256_storeu_ps(p + 8, x.hi);
}

inline F32x16 Add(F32x16 a, F32x16 b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
inline F32x16 Sub(F32x16 a, F32x16 b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
inline F32x16 Mul(F32x16 a, F32x16 b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
inline F32x16 Div(F32x16 a, F32x16 b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
inline F32x16 Max(F32x16 a, F32x16 b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
inline F32x16 Min(F32x16 a, F32x16 b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}
inline F32x16 Fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}

inline __m256 FirstOfEight(__m256 x, int n) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i keep = _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane);
  return _mm256_and_ps(x, _mm256_castsi256_ps(keep));
}
inline F32x16 FirstLanes(F32x16 x, int n) {
  return {FirstOfEight(x.lo, n), FirstOfEight(x.hi, n - 8)};
}

inline F32x16 Round(F32x16 x) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.lo, kNearest), _mm256_round_ps(x.hi, kNearest)};
}

inline __m256 PowerOfTwo(__m256 n) {
  const __m256i exponent =
      _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
}
inline F32x16 PowerOfTwo(F32x16 n) {
  return {PowerOfTwo(n.lo), PowerOfTwo(n.hi)};
}

inline float SumLanes(F32x16 x) {
  const __m256 half = _mm256_add_ps(x.lo, x.hi);
  const __m128 quarter =
      _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  const __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
}

inline __m256 WidenEight(const uint16_t* p) {
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}
inline F32x16 Load(const uint16_t* p) {
  return {WidenEight(p), WidenEight(p + 8)};
}

// The bfloat16 of each lane in the low half of its 32 bits.
inline __m256i NarrowEight(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd =
      _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded =
      _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256 finite =
      _mm256_cmp_ps(_mm256_sub_ps(x, x), _mm256_setzero_ps(), _CMP_EQ_OQ);
  const __m256i quiet =
      _mm256_and_si256(_mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)),
                       _mm256_set1_epi32(0x400000));
  const __m256i chosen = _mm256_or_si256(
      _mm256_blendv_epi8(bits, rounded, _mm256_castps_si256(finite)), quiet);
  return _mm256_srli_epi32(chosen, 16);
}
// Rounds to the nearest even bfloat16. A NaN stays one.
inline void Store(uint16_t* p, F32x16 x) {
  const __m256i packed =
      _mm256_packus_epi32(NarrowEight(x.lo), NarrowEight(x.hi));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm256_permute4x64_epi64(packed, 0xd8));
}

inline bool AllFinite(F32x16 x) {
  const __m256 zero = _mm256_setzero_ps();
  const __m256 finite =
      _mm256_and_ps(_mm256_cmp_ps(_mm256_sub_ps(x.lo, x.lo), zero, _CMP_EQ_OQ),
                    _mm256_cmp_ps(_mm256_sub_ps(x.hi, x.hi), zero, _CMP_EQ_OQ));
  return _mm256_movemask_ps(finite) == 0xff;
}

inline __m256 EvenOfEightPairs(const uint16_t* p) {
  const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
}
inline __m256 OddOfEightPairs(const uint16_t* p) {
  const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm256_castsi256_ps(_mm256_and_si256(
      pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
}
inline F32x16 EvenBFloat16(const uint16_t* p) {
  return {EvenOfEightPairs(p), EvenOfEightPairs(p + 16)};
}
inline F32x16 OddBFloat16(const uint16_t* p) {
  return {OddOfEightPairs(p), OddOfEightPairs(p + 16)};
}

// Not __m256i, which is four numbers to the compiler: see simd_avx512.h.
struct I32x16 {
  using Lanes = int32_t __attribute__((vector_size(32)));
  Lanes lo, hi;
};
inline F32x16 ToFloat(I32x16 x) {
  return {_mm256_cvtepi32_ps((__m256i)x.lo), _mm256_cvtepi32_ps((__m256i)x.hi)};
}

struct EightQuads {
  __m256i even, odd;  // of the 32 weights, as int16
};
inline EightQuads LoadEightQuads(const int8_t* p) {
  const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8),
          _mm256_srai_epi16(bytes, 8)};
}
inline I32x16::Lanes AddEightQuads(EightQuads weights, InputQuad input,
                                   I32x16::Lanes sum) {
  const __m256i even =
      _mm256_madd_epi16(weights.even, _mm256_set1_epi32(input.even));
  const __m256i odd =
      _mm256_madd_epi16(weights.odd, _mm256_set1_epi32(input.odd));
  return sum + (I32x16::Lanes)even + (I32x16::Lanes)odd;
}

struct WeightQuads {
  EightQuads lo, hi;
};
inline WeightQuads LoadQuads(const int8_t* p) {
  return {LoadEightQuads(p), LoadEightQuads(p + 32)};
}
inline void StoreQuads(InputQuad* out, F32x16 x) {
  int32_t integers[16];
  auto* to = reinterpret_cast<__m256i*>(integers);
  _mm256_storeu_si256(to, _mm256_cvtps_epi32(x.lo));
  _mm256_storeu_si256(to + 1, _mm256_cvtps_epi32(x.hi));
  StoreQuads(out, integers);
}
inline I32x16 FirstSums(const int32_t*) { return I32x16(); }
inline I32x16 AddQuads(WeightQuads weights, InputQuad input, I32x16 sum) {
  return {AddEightQuads(weights.lo, input, sum.lo),
          AddEightQuads(weights.hi, input, sum.hi)};
}

}  // namespace flash::cpu::FLASH_ISA

#include "kernels/cpu/pairs_widened.h"  // needs EvenBFloat16, OddBFloat16

#endif  // KERNELS_CPU_SIMD_AVX2_H_
