// The prefix cache: states at chunk boundaries of prompts, so that a prompt
// that begins as an earlier one did goes on from there. One state, of constant
// size, stands for a beginning of any length.

#ifndef SERVER_SESSIONS_PREFIX_CACHE_H_
#define SERVER_SESSIONS_PREFIX_CACHE_H_

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "kernels/mutex.h"
#include "server/scheduler/prefix_states.h"
#include "server/sessions/passed_boundaries.h"

namespace flash {

// Keys are a SHA-256 chain over the chunks of a text. They are the same in
// every server with the same options, so that what one has saved another finds.
//
// Kept are the states
//   - at the last boundary of each prompt: the same text may come again, with
//     more behind it;
//   - where two prompts part: from the third on that begins so, what they have
//     in common is run once. (At the first nobody can know.)
//   - after 1, 2, 4, 8, … chunks: so the second has no more than half of it to
//     run again, at the price of a logarithm of states.
//
// When there is no room, the state goes that is worth least: the fewest chunks
// would have to be run again from the kept state before it, of equals the one
// not used for longest. A new one that is worth less than all others is not
// wanted. Worth ages: a state that is used is worth as much more as the last
// one that went was worth. (Young's GreedyDual; states at boundaries are
// equally large, so size plays no part.) So states are thinned out where they
// lie close together, and long prompts outlive many short ones, but not for
// ever.
//
// Thread safety: every function may be called from any thread. They hold a
// mutex for a few microseconds; where they look up every boundary of a prompt,
// for less than a millisecond at a million tokens.
class PrefixCache final : public PrefixStates {
 public:
  enum class Sharing {
    kWithinOwner,  // what one owner's prompts left is never found by another's
    kAmongAll,     // and how long an answer takes tells what others have asked
  };
  struct Options {
    // Of the states and what the cache knows of each. 0: nothing is kept.
    int64_t max_bytes = 0;
    int chunk_size = 0;  // LanguageModel::chunk_size()
    // What must be equal where a state was made and where it is used, for the
    // bits of what follows to be equal: model, numerics, form of the state.
    std::string fingerprint;
    Sharing sharing = Sharing::kWithinOwner;
    // Boundaries of earlier prompts, of 8 bytes, that are known without a
    // state.
    size_t remembered_boundaries = size_t{1} << 17;
  };

  // The counters only rise.
  struct Stats {
    int64_t hits = 0;
    int64_t hit_tokens = 0;
    // No earlier prompt began so, as far as is remembered.
    int64_t new_misses = 0;
    // One did, but no state of it is here: none was kept, or no more.
    int64_t lost_misses = 0;
    int64_t puts = 0;
    int64_t too_large = 0;       // not put: larger than the whole cache
    int64_t worthless = 0;       // not wanted: worth less than all that is here
    int64_t used_evictions = 0;  // of states that had been a hit
    int64_t unused_evictions = 0;
    int64_t states = 0;
    int64_t bytes = 0;
    int64_t max_bytes = 0;
  };

  explicit PrefixCache(Options options);
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  PrefixKey KeyOfNothing(std::string_view owner) const override;
  // REQUIRES: as many ids as a chunk has.
  PrefixKey KeyAfter(const PrefixKey& before,
                     std::span<const int32_t> chunk) const override;

  std::optional<Found> Find(std::span<const PrefixKey> keys) override;
  bool Wants(std::span<const PrefixKey> keys, size_t num_chunks) override;
  // A state that is here already is only used again.
  std::vector<std::shared_ptr<const std::string>> Put(
      std::span<const PrefixKey> keys, size_t num_chunks,
      std::shared_ptr<const std::string> state) override;

  Stats stats() const;

 private:
  struct Entry;
  // What it is worth, and the number of its last use. The least goes first.
  using Worth = std::pair<int64_t, int64_t>;
  struct Entry {
    PrefixKey key;
    std::shared_ptr<const std::string> state;
    int64_t num_chunks = 0;
    bool was_hit = false;
    // The nearest kept boundary before this one as of its last use, and the
    // entries that have this one there.
    Entry* before = nullptr;
    std::vector<Entry*> after;
    int64_t used_at = 0;  // the clock then
    Worth worth;
  };
  struct Hash {
    size_t operator()(const PrefixKey& key) const {
      size_t bits;
      std::memcpy(&bits, key.data(), sizeof(bits));
      return bits;
    }
  };
  // With what the cache knows of it.
  static int64_t SizeOf(const std::string& state);
  // The chunks that would have to be run again without a state after so many.
  static int64_t Cost(int64_t num_chunks, const Entry* before);
  // The deepest entry among the boundaries of `keys`; null if there is none.
  Entry* Deepest(std::span<const PrefixKey> keys)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The prompt of `keys` has this entry at its end, and uses it.
  void Use(Entry& entry, std::span<const PrefixKey> keys)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetBefore(Entry& entry, Entry* before)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetWorth(Entry& entry, int64_t use)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives back the state of the entry that is worth least.
  std::shared_ptr<const std::string> Evict()
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;

  mutable Mutex mutex_;
  PassedBoundaries passed_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<PrefixKey, Entry, Hash> entries_ ABSL_GUARDED_BY(mutex_);
  std::map<Worth, Entry*> by_worth_ ABSL_GUARDED_BY(mutex_);
  int64_t clock_ ABSL_GUARDED_BY(mutex_) = 0;  // what went last was worth that
  int64_t last_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of what was put last
  int64_t num_uses_ ABSL_GUARDED_BY(mutex_) = 0;
  Stats stats_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace flash

#endif  // SERVER_SESSIONS_PREFIX_CACHE_H_
