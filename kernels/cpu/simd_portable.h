// Sixteen float32 lanes in plain C++: for any x86-64, and to read. Without a
// fused instruction Fma() rounds twice, as its own definition.

#ifndef KERNELS_CPU_SIMD_PORTABLE_H_
#define KERNELS_CPU_SIMD_PORTABLE_H_

#include <xmmintrin.h>

#include <cstdint>
#include <cstring>

namespace flash::cpu::FLASH_ISA {

constexpr int kTileRows = 2;
constexpr int kTileVectors = 1;

constexpr int kLanes = 16;

struct F32x16 {
  float v[kLanes];
};

// One value a lane: f(lane).
template <typename F>
inline F32x16 EachLane(F f) {
  F32x16 r;
  for (int lane = 0; lane < kLanes; ++lane) r.v[lane] = f(lane);
  return r;
}

inline uint32_t Bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}
inline float FromBits(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

inline F32x16 Set1(float x) {
  return EachLane([&](int) { return x; });
}
inline F32x16 Zero() { return Set1(0); }
inline F32x16 Load(const float* p) {
  return EachLane([&](int i) { return p[i]; });
}
inline void Store(float* p, F32x16 x) { std::memcpy(p, x.v, sizeof(x.v)); }

inline F32x16 Add(F32x16 a, F32x16 b) {
  return EachLane([&](int i) { return a.v[i] + b.v[i]; });
}
inline F32x16 Sub(F32x16 a, F32x16 b) {
  return EachLane([&](int i) { return a.v[i] - b.v[i]; });
}
inline F32x16 Mul(F32x16 a, F32x16 b) {
  return EachLane([&](int i) { return a.v[i] * b.v[i]; });
}
inline F32x16 Div(F32x16 a, F32x16 b) {
  return EachLane([&](int i) { return a.v[i] / b.v[i]; });
}
// The second operand where either is NaN, as the vector instructions have it.
inline F32x16 Max(F32x16 a, F32x16 b) {
  return EachLane([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
inline F32x16 Min(F32x16 a, F32x16 b) {
  return EachLane([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
inline F32x16 Fma(F32x16 a, F32x16 b, F32x16 c) {
  return EachLane([&](int i) { return a.v[i] * b.v[i] + c.v[i]; });
}

inline F32x16 FirstLanes(F32x16 x, int n) {
  return EachLane([&](int i) { return i < n ? x.v[i] : 0.0f; });
}

inline F32x16 Round(F32x16 x) {
  return EachLane([&](int i) {
    return static_cast<float>(_mm_cvtss_si32(_mm_set_ss(x.v[i])));
  });
}

inline F32x16 PowerOfTwo(F32x16 n) {
  return EachLane([&](int i) {
    return FromBits(static_cast<uint32_t>(static_cast<int>(n.v[i]) + 127)
                    << 23);
  });
}

inline float SumLanes(F32x16 x) {
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) x.v[i] += x.v[i + width];
  }
  return x.v[0];
}

inline F32x16 Load(const uint16_t* p) {
  return EachLane(
      [&](int i) { return FromBits(static_cast<uint32_t>(p[i]) << 16); });
}

inline bool IsFinite(float x) { return (Bits(x) & 0x7f800000) != 0x7f800000; }

// Rounds to the nearest even bfloat16. A NaN stays one.
inline uint16_t Narrow(float x) {
  uint32_t bits = Bits(x);
  if (IsFinite(x)) {
    bits += 0x7fff + (bits >> 16 & 1);
  } else if (x != x) {
    bits |= 0x400000;
  }
  return static_cast<uint16_t>(bits >> 16);
}
inline void Store(uint16_t* p, F32x16 x) {
  for (int i = 0; i < kLanes; ++i) p[i] = Narrow(x.v[i]);
}

inline bool AllFinite(F32x16 x) {
  bool all = true;
  for (int i = 0; i < kLanes; ++i) all &= IsFinite(x.v[i]);
  return all;
}

inline F32x16 EvenBFloat16(const uint16_t* p) {
  return EachLane(
      [&](int i) { return FromBits(static_cast<uint32_t>(p[2 * i]) << 16); });
}
inline F32x16 OddBFloat16(const uint16_t* p) {
  return EachLane([&](int i) {
    return FromBits(static_cast<uint32_t>(p[2 * i + 1]) << 16);
  });
}

struct I32x16 {
  int32_t v[kLanes];
};
inline F32x16 ToFloat(I32x16 x) {
  return EachLane([&](int i) { return static_cast<float>(x.v[i]); });
}

struct InputQuad {
  int8_t v[4];
};
struct WeightQuads {
  int8_t v[kLanes][4];
};
inline WeightQuads LoadQuads(const int8_t* p) {
  WeightQuads weights;
  std::memcpy(weights.v, p, sizeof(weights.v));
  return weights;
}
inline void StoreQuads(InputQuad* out, F32x16 x) {
  for (int i = 0; i < kLanes; ++i) {
    out[i / 4].v[i % 4] =
        static_cast<int8_t>(_mm_cvtss_si32(_mm_set_ss(x.v[i])));
  }
}
inline I32x16 FirstSums(const int32_t*) { return I32x16(); }
inline I32x16 AddQuads(WeightQuads weights, InputQuad input, I32x16 sum) {
  for (int i = 0; i < kLanes; ++i) {
    for (int k = 0; k < 4; ++k) sum.v[i] += weights.v[i][k] * input.v[k];
  }
  return sum;
}

}  // namespace flash::cpu::FLASH_ISA

#include "kernels/cpu/pairs_widened.h"  // needs EvenBFloat16, OddBFloat16

#endif  // KERNELS_CPU_SIMD_PORTABLE_H_
