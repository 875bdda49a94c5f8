#include "server/sessions/passed_boundaries.h"

#include <bit>
#include <cstring>

namespace flash {
namespace {

constexpr uint64_t kWanted = 1;

// Keys are evenly spread, so any of their bits will do.
uint64_t BitsOf(const PrefixKey& key, size_t offset) {
  uint64_t bits;
  std::memcpy(&bits, key.data() + offset, sizeof(bits));
  return bits;
}

uint64_t TagOf(const PrefixKey& key) { return BitsOf(key, 8) & ~kWanted; }

}  // namespace

PassedBoundaries::PassedBoundaries(size_t num_boundaries)
    : places_(std::bit_ceil(num_boundaries)) {}

size_t PassedBoundaries::PlaceOf(const PrefixKey& key) const {
  return BitsOf(key, 0) & (places_.size() - 1);
}

size_t PassedBoundaries::Pass(std::span<const PrefixKey> keys) {
  size_t num_shared = 0;
  for (size_t n = 0; n < keys.size(); ++n) {
    uint64_t& place = places_[PlaceOf(keys[n])];
    // The key of a boundary is that of all tokens before it: who passed this
    // one passed those before, also if their places have been taken since.
    if ((place & ~kWanted) == TagOf(keys[n])) {
      num_shared = n + 1;
    } else {
      place = TagOf(keys[n]);
    }
  }
  return num_shared;
}

void PassedBoundaries::Want(const PrefixKey& key) {
  places_[PlaceOf(key)] = TagOf(key) | kWanted;
}

bool PassedBoundaries::IsWanted(const PrefixKey& key) const {
  return places_[PlaceOf(key)] == (TagOf(key) | kWanted);
}

}  // namespace flash
