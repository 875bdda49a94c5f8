// exp(x) for x <= 0 in float32: additions and multiplications only, so that it
// is the same bits on every machine, and a loop over it becomes vector code.

#ifndef SERVER_MODEL_EXPONENTIAL_H_
#define SERVER_MODEL_EXPONENTIAL_H_

#include <bit>
#include <cstdint>

namespace flash {

// Returns exp(x), within 2 units in the last place; exactly 1 for 0.
// REQUIRES: -87 <= x <= 0.
//
// x = n ln 2 + r with |r| <= ln 2 / 2; then 2^n times the polynomial of degree
// 7 that the Cephes library has for exp(r) (Moshier, expf).
inline float ExpOfNonPositive(float x) {
  // Adding 1.5 * 2^23 leaves an integer in the low bits, rounded to nearest.
  constexpr float kRound = 12582912.0f;
  constexpr int32_t kRoundBits = 0x4B400000;
  const float shifted = x * 1.44269504088896341f + kRound;
  const float n = shifted - kRound;
  // ln 2 in two parts: the products with the first are exact.
  float r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - kRoundBits;
  return p * std::bit_cast<float>((exponent + 127) << 23);
}

}  // namespace flash

#endif  // SERVER_MODEL_EXPONENTIAL_H_
