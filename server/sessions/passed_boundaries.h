// Which chunk boundaries prompts have passed lately, so that it is noticed when
// another one begins as an earlier one did.

#ifndef SERVER_SESSIONS_PASSED_BOUNDARIES_H_
#define SERVER_SESSIONS_PASSED_BOUNDARIES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "server/scheduler/prefix_states.h"

namespace flash {

// A table of a fixed size in which new boundaries take the places of older
// ones. It knows keys by 63 of their bits: mistaking one for another costs a
// state that nobody asks for, and nothing else.
//
// Thread safety: one thread at a time.
class PassedBoundaries {
 public:
  // Remembers about `num_boundaries` boundaries, in 8 bytes each.
  explicit PassedBoundaries(size_t num_boundaries);

  // A prompt is going to pass all of `keys`. Returns how many of them, from the
  // first on, an earlier prompt passed.
  size_t Pass(std::span<const PrefixKey> keys);

  // Remembers that the state at this boundary, which has been passed, is
  // wanted.
  void Want(const PrefixKey& key);
  bool IsWanted(const PrefixKey& key) const;

 private:
  size_t PlaceOf(const PrefixKey& key) const;

  // 63 bits of a key, and whether it is wanted. 0: empty. A power of two many.
  std::vector<uint64_t> places_;
};

}  // namespace flash

#endif  // SERVER_SESSIONS_PASSED_BOUNDARIES_H_
