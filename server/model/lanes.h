// Four floats side by side, in the vector extension that g++ and clang share:
// the loops over logits are vector code because they say so, not because an
// optimiser saw it. Every operation is that of the scalars, lane by lane, so
// results are the same bits whatever the machine makes of it.

#ifndef SERVER_MODEL_LANES_H_
#define SERVER_MODEL_LANES_H_

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

namespace flash {

using Float4 = float __attribute__((vector_size(16)));
using Int4 = int32_t __attribute__((vector_size(16)));  // also masks: 0 or -1
using Double4 = double __attribute__((vector_size(32)));

inline Float4 Splat(float value) { return Float4{value, value, value, value}; }

inline Float4 LoadFloat4(const float* from) {
  Float4 lanes;
  std::memcpy(&lanes, from, sizeof(lanes));
  return lanes;
}

inline void Store(Float4 lanes, float* to) {
  std::memcpy(to, &lanes, sizeof(lanes));
}

inline bool AnyOf(Int4 mask) {
  const auto halves = std::bit_cast<std::array<uint64_t, 2>>(mask);
  return (halves[0] | halves[1]) != 0;
}

}  // namespace flash

#endif  // SERVER_MODEL_LANES_H_
