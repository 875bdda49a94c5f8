// A weight matrix of a checkpoint, output by output: what the packers of every
// device begin with.

#ifndef KERNELS_DENSE_SOURCE_H_
#define KERNELS_DENSE_SOURCE_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend.h"

namespace flash {

// The outputs of `source`, each segment's padding included.
int64_t PaddedOutputs(const DenseSource& source);

// Where each output's weights begin in host memory; null for padding.
std::vector<const std::byte*> OutputRows(const DenseSource& source);

// The bias of each output, zeros where there is none.
std::vector<float> PaddedBias(const DenseSource& source);

// INVALID_ARGUMENT if `source` is to be int8 and has more than kMaxInt8Inputs
// columns.
absl::Status CheckDepth(const DenseSource& source);

absl::Status WeightIsNotFinite();

// Bits of one number of the checkpoint's type, as those of a float32.
inline constexpr uint32_t kExponentBits = 0x7f800000;  // of a float32

struct Float16 {  // clang 14 has no such type for x86
  uint16_t bits;
};

inline uint32_t Widen(float number) {
  uint32_t bits;
  std::memcpy(&bits, &number, sizeof(bits));
  return bits;
}
inline uint32_t Widen(Float16 number) {
  const uint32_t sign = static_cast<uint32_t>(number.bits & 0x8000) << 16;
  const uint32_t exponent = number.bits >> 10 & 0x1f;
  const uint32_t mantissa = number.bits & 0x3ff;
  if (exponent == 0x1f) return sign | kExponentBits | mantissa << 13;
  if (exponent > 0) return sign | (exponent + 112) << 23 | mantissa << 13;
  return sign | Widen(static_cast<float>(mantissa) * 0x1p-24f);  // a denormal
}
inline uint32_t Widen(uint16_t number) {  // bfloat16
  return static_cast<uint32_t>(number) << 16;
}

// Number k of an output's weights, as the bits of a float32.
template <typename From>
uint32_t WidenedBits(const std::byte* row, int64_t k) {
  From number;
  std::memcpy(&number, row + k * sizeof(From), sizeof(From));
  return Widen(number);
}

// The stored type's bits. What is not finite stays so.
struct Float32Bits {
  using Type = uint32_t;
  static Type Narrow(uint32_t bits) { return bits; }
  static bool IsFinite(Type bits) {
    return (bits & kExponentBits) != kExponentBits;
  }
};
struct BFloat16Bits {
  using Type = uint16_t;
  static Type Narrow(uint32_t bits) {
    if ((bits & kExponentBits) == kExponentBits) return bits >> 16 | 0x40;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;  // nearest, ties to even
  }
  static bool IsFinite(Type bits) { return (bits & 0x7f80) != 0x7f80; }
};

// Calls put(k, integer) for each of an output's weights as DenseSource says
// that they become int8, and sets `scale`; calls nothing where that is 0.
// Returns false if a weight is not finite.
template <typename From, typename Put>
bool RoundOutputToInt8(const std::byte* row, int64_t inputs, float& scale,
                       Put&& put) {
  uint32_t largest = 0;  // magnitudes are in the order of their bits
  for (int64_t k = 0; k < inputs; ++k) {
    largest = std::max(largest, WidenedBits<From>(row, k) & 0x7fffffff);
  }
  if (largest >= kExponentBits) return false;
  const auto from_bits = [](uint32_t bits) {
    float number;
    std::memcpy(&number, &bits, sizeof(number));
    return number;
  };
  scale = from_bits(largest) / 127;
  if (scale < kLeastInt8Scale) {
    scale = 0;
    return true;
  }
  const float inverse = 1 / scale;
  for (int64_t k = 0; k < inputs; ++k) {
    const float weight = from_bits(WidenedBits<From>(row, k));
    put(k, static_cast<int8_t>(std::lrint(weight * inverse)));
  }
  return true;
}

}  // namespace flash

#endif  // KERNELS_DENSE_SOURCE_H_
