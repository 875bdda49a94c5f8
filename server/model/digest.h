// Tells bytes from other bytes.

#ifndef SERVER_MODEL_DIGEST_H_
#define SERVER_MODEL_DIGEST_H_

#include <string>
#include <string_view>

namespace flash {

// XXH3 of 128 bits, in its canonical form: at about the speed of memory.
// Against damage and mix-ups, not against somebody who wants two texts to have
// one digest. Pure; any thread.
inline constexpr size_t kDigestBytes = 16;
std::string DigestOf(std::string_view bytes);

// The same as 32 hexadecimal digits.
std::string HexDigestOf(std::string_view bytes);

}  // namespace flash

#endif  // SERVER_MODEL_DIGEST_H_
