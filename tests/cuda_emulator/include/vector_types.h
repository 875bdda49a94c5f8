// dim3 and the short vectors, with CUDA's alignment.

#ifndef TESTS_CUDA_EMULATOR_INCLUDE_VECTOR_TYPES_H_
#define TESTS_CUDA_EMULATOR_INCLUDE_VECTOR_TYPES_H_

struct dim3 {
  constexpr dim3(unsigned x_in = 1, unsigned y_in = 1, unsigned z_in = 1)
      : x(x_in), y(y_in), z(z_in) {}
  unsigned x, y, z;
};

struct uint3 {
  unsigned x, y, z;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}

#endif  // TESTS_CUDA_EMULATOR_INCLUDE_VECTOR_TYPES_H_
