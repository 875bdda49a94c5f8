// Numbers as kernels load and store them, one or eight at a time. float32, or
// bfloat16 as its bits in a uint16_t, which is widened exactly and rounded to
// nearest even, by the same rules as on the CPU.

#ifndef KERNELS_CUDA_NUMBERS_H_
#define KERNELS_CUDA_NUMBERS_H_

#include <cuda_runtime.h>

#include <cstdint>

namespace flash::cuda {

__device__ inline bool IsFinite(float x) {
  return (__float_as_uint(x) & 0x7f800000) != 0x7f800000;
}

__device__ inline float Load(const float* p) { return *p; }
__device__ inline float Load(const uint16_t* p) {
  return __uint_as_float(static_cast<uint32_t>(*p) << 16);
}

// A NaN stays one.
__device__ inline uint16_t Narrow(float x) {
  uint32_t bits = __float_as_uint(x);
  if (IsFinite(x)) {
    bits += 0x7fff + (bits >> 16 & 1);
  } else if (x != x) {
    bits |= 0x400000;
  }
  return static_cast<uint16_t>(bits >> 16);
}

__device__ inline void Store(float* p, float x) { *p = x; }
__device__ inline void Store(uint16_t* p, float x) { *p = Narrow(x); }

// x as it is after it has been stored.
template <typename T>
__device__ float Rounded(float x) {
  T stored;
  Store(&stored, x);
  return Load(&stored);
}

// x / (1 + e^-x).
__device__ inline float Silu(float x) { return x / (1.0f + expf(-x)); }

// Neighbours, loaded at once: `p` is aligned to them.
struct Eight {
  float v[8];
};

__device__ inline Eight ZeroEight() { return {{0, 0, 0, 0, 0, 0, 0, 0}}; }

__device__ inline Eight LoadEight(const float* p) {
  const float4 a = *reinterpret_cast<const float4*>(p);
  const float4 b = *reinterpret_cast<const float4*>(p + 4);
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}
__device__ inline Eight LoadEight(const uint16_t* p) {
  const uint4 bits = *reinterpret_cast<const uint4*>(p);
  const uint32_t pairs[4] = {bits.x, bits.y, bits.z, bits.w};
  Eight eight;
  for (int n = 0; n < 4; ++n) {
    eight.v[2 * n] = __uint_as_float(pairs[n] << 16);
    eight.v[2 * n + 1] = __uint_as_float(pairs[n] & 0xffff0000);
  }
  return eight;
}

// sums += x * values, one fused multiply-add each.
__device__ inline void AddScaled(float x, const Eight& values, Eight& sums) {
  for (int n = 0; n < 8; ++n) sums.v[n] = fmaf(x, values.v[n], sums.v[n]);
}

}  // namespace flash::cuda

#endif  // KERNELS_CUDA_NUMBERS_H_
