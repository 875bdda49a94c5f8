// The vector of sixteen float32 lanes in which every CPU kernel is written, for
// the instruction set that this file is compiled for. Kernels are compiled once
// for each set, with FLASH_ISA its namespace and FLASH_SIMD_HEADER the header
// below that defines:
//
//   kTileRows, kTileVectors   the largest tile of sums that stays in registers
//   F32x16                    sixteen float32
//   Zero Set1 Load Store      also from and to bfloat16 (uint16_t*), which is
//                             widened exactly and rounded to nearest even
//   Add Sub Mul Div Max Min   lane by lane; Max and Min give their second
//                             operand where either is NaN
//   Fma(a, b, c)              a * b + c
//   FirstLanes(x, n)          lanes from n on become 0
//   SumLanes(x)               halves onto halves: 8 + 8, 4 + 4, 2 + 2, 1 + 1
//   Round PowerOfTwo          to the nearest integer; 2^n for integers n
//   AllFinite                 no lane is infinite or NaN
//   WeightPairs, InputPair    products of bfloat16 weights, two inputs at a
//   LoadPairs PackInputs      time: weights are stored [inputs / 2][16][2]
//   PairFma
//   I32x16                    sixteen int32: sums of products of int8 weights,
//   WeightQuads, InputQuad    four inputs at a time: weights are stored
//   FirstSums LoadQuads       [inputs / 4][16][4]; FirstSums gives what the
//   StoreQuads AddQuads       sums begin with, and StoreQuads rounds sixteen
//   ToFloat                   inputs to integers

#ifndef KERNELS_CPU_SIMD_H_
#define KERNELS_CPU_SIMD_H_

#include FLASH_SIMD_HEADER

namespace flash::cpu::FLASH_ISA {

// e^x to within 2 ulp for x in [-87, 88], clamped outside.
inline F32x16 Exp(F32x16 x) {
  x = Min(Max(x, Set1(-87.0f)), Set1(88.0f));
  const F32x16 n = Round(Mul(x, Set1(1.44269504f)));
  // x - n ln 2, with ln 2 in two parts so that the product is exact.
  F32x16 r = Fma(n, Set1(-0.693359375f), x);
  r = Fma(n, Set1(2.12194440e-4f), r);
  // The Taylor series: |r| <= 0.35, so the first term left out is below 1e-8.
  F32x16 p = Set1(1.0f / 5040);
  p = Fma(p, r, Set1(1.0f / 720));
  p = Fma(p, r, Set1(1.0f / 120));
  p = Fma(p, r, Set1(1.0f / 24));
  p = Fma(p, r, Set1(1.0f / 6));
  p = Fma(p, r, Set1(0.5f));
  p = Fma(p, r, Set1(1.0f));
  p = Fma(p, r, Set1(1.0f));
  return Mul(p, PowerOfTwo(n));
}

// x / (1 + e^-x).
inline F32x16 Silu(F32x16 x) {
  return Div(x, Add(Set1(1.0f), Exp(Sub(Zero(), x))));
}

}  // namespace flash::cpu::FLASH_ISA

#endif  // KERNELS_CPU_SIMD_H_
