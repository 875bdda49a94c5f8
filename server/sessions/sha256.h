// SHA-256, for names that cannot be guessed from each other and for equality
// that somebody may want to fake.

#ifndef SERVER_SESSIONS_SHA256_H_
#define SERVER_SESSIONS_SHA256_H_

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace flash {

using Sha256Digest = std::array<uint8_t, 32>;

// Of the parts, one after the other. Where one part ends and the next begins
// makes no difference: the caller sees to it that it cannot be mistaken.
Sha256Digest Sha256(std::initializer_list<std::string_view> parts);

// An array's or a span's bytes, as a part. REQUIRES: `object` outlives it.
template <typename T>
std::string_view BytesOf(const T& object) {
  return {reinterpret_cast<const char*>(object.data()),
          object.size() * sizeof(*object.data())};
}

}  // namespace flash

#endif  // SERVER_SESSIONS_SHA256_H_
