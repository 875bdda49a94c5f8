// exp(x) for x <= 0 in float32: additions and multiplications only, so that it
// is the same bits on every machine, for one number or for four side by side.

#ifndef SERVER_MODEL_EXPONENTIAL_H_
#define SERVER_MODEL_EXPONENTIAL_H_

#include <bit>
#include <cstdint>

#include "server/model/lanes.h"

namespace flash {

// Returns exp(x), within 2 units in the last place; exactly 1 for 0.
// REQUIRES: -87 <= x <= 0.
//
// x = n ln 2 + r with |r| <= ln 2 / 2; then 2^n times the polynomial of degree
// 7 that the Cephes library has for exp(r) (Moshier, expf).
template <typename Float, typename Int>
Float ExpOfNonPositive(Float x) {
  // Adding 1.5 * 2^23 leaves an integer in the low bits, rounded to nearest.
  constexpr float kRound = 12582912.0f;
  constexpr int32_t kRoundBits = 0x4B400000;
  const Float shifted = x * 1.44269504088896341f + kRound;
  const Float n = shifted - kRound;
  // ln 2 in two parts: the products with the first are exact.
  Float r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  Float p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const Int exponent = std::bit_cast<Int>(shifted) - kRoundBits;
  return p * std::bit_cast<Float>((exponent + 127) << 23);
}

inline float ExpOfNonPositive(float x) {
  return ExpOfNonPositive<float, int32_t>(x);
}
inline Float4 ExpOfNonPositive(Float4 x) {
  return ExpOfNonPositive<Float4, Int4>(x);
}

}  // namespace flash

#endif  // SERVER_MODEL_EXPONENTIAL_H_
