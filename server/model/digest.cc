#include "server/model/digest.h"

// Compiled in: one function is no reason to need a library where this runs.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "absl/strings/escaping.h"

namespace flash {

std::string DigestOf(std::string_view bytes) {
  XXH128_canonical_t digest;
  static_assert(sizeof(digest.digest) == kDigestBytes);
  XXH128_canonicalFromHash(&digest, XXH3_128bits(bytes.data(), bytes.size()));
  return std::string(reinterpret_cast<const char*>(digest.digest),
                     kDigestBytes);
}

std::string HexDigestOf(std::string_view bytes) {
  return absl::BytesToHexString(DigestOf(bytes));
}

}  // namespace flash
