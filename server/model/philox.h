// Philox4x32-10, the counter-based random numbers of Salmon, Moraes, Dror and
// Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
//
// A number is a function of a key and a counter, not of what was drawn before:
// a token's randomness does not depend on who else is in the batch, nor on
// which server generated the tokens before it.

#ifndef SERVER_MODEL_PHILOX_H_
#define SERVER_MODEL_PHILOX_H_

#include <array>
#include <cstdint>

namespace flash {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

// Returns the 128 random bits of `counter` under `key`, least significant word
// first, as the published definition and its known answers have it.
constexpr PhiloxCounter Philox4x32(PhiloxCounter counter, PhiloxKey key) {
  constexpr uint32_t kMultiplier0 = 0xD2511F53;
  constexpr uint32_t kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;  // golden ratio
  constexpr uint32_t kWeyl1 = 0xBB67AE85;  // sqrt(3) - 1
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * counter[0];
    const uint64_t product1 = uint64_t{kMultiplier1} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return counter;
}

}  // namespace flash

#endif  // SERVER_MODEL_PHILOX_H_
