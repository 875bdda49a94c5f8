// Inputs of int8 products where there is no instruction for them: weights and
// inputs are widened to int16, and multiplied in pairs, whose sums are exact.

#ifndef KERNELS_CPU_QUADS_WIDENED_H_
#define KERNELS_CPU_QUADS_WIDENED_H_

#include <cstdint>

namespace flash::cpu::FLASH_ISA {

// Two int16 in each, the first in the low half: a byte of weights is widened
// together with the one after the next.
struct InputQuad {
  int32_t even;  // inputs 0 and 2
  int32_t odd;   // inputs 1 and 3
};

// Sixteen inputs that are integers already.
inline void StoreQuads(InputQuad* out, const int32_t* x) {
  const auto pair = [](int32_t low, int32_t high) {
    return static_cast<int32_t>((static_cast<uint32_t>(low) & 0xffff) |
                                static_cast<uint32_t>(high) << 16);
  };
  for (int n = 0; n < 4; ++n, x += 4) {
    out[n] = {pair(x[0], x[2]), pair(x[1], x[3])};
  }
}

}  // namespace flash::cpu::FLASH_ISA

#endif  // KERNELS_CPU_QUADS_WIDENED_H_
