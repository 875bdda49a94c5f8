// States at chunk boundaries, by the tokens before them: what the scheduler
// asks of a prefix cache, and of whoever keeps checkpoints of running requests.

#ifndef SERVER_SCHEDULER_PREFIX_STATES_H_
#define SERVER_SCHEDULER_PREFIX_STATES_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/scheduler/request.h"

namespace flash {

// Stands for all tokens of a text up to a chunk boundary, and for whom they may
// be shared with. Equal keys mean equal tokens (a cryptographic hash).
using PrefixKey = std::array<uint8_t, 32>;

// Thread safety: KeyOfNothing() and KeyAfter() on any thread; the rest on the
// decode thread, which none of them holds up.
class PrefixStates {
 public:
  virtual ~PrefixStates() = default;

  // The key of no tokens at all, in texts of `owner`.
  virtual PrefixKey KeyOfNothing(std::string_view owner) const = 0;
  // The key of the tokens that `before` stands for and of `chunk`, the next
  // whole chunk.
  virtual PrefixKey KeyAfter(const PrefixKey& before,
                             std::span<const int32_t> chunk) const = 0;

  struct Found {
    size_t num_chunks = 0;
    std::shared_ptr<const std::string> state;  // LanguageModel::Save()
  };
  // The longest beginning of a prompt whose state is at hand. keys[n] stands
  // for its first n + 1 chunks.
  virtual std::optional<Found> Find(std::span<const PrefixKey> keys) = 0;

  // A prompt has just been run up to chunk `num_chunks` of keys.size() whole
  // ones: whether its state there is worth keeping. If so, Put() follows soon,
  // unless the request fails.
  virtual bool Wants(std::span<const PrefixKey> keys, size_t num_chunks) = 0;
  // Returns what had to make room: whoever drops it may have to wipe it.
  virtual std::vector<std::shared_ptr<const std::string>> Put(
      std::span<const PrefixKey> keys, size_t num_chunks,
      std::shared_ptr<const std::string> state) = 0;
};

// Keeps the newest state of each running request where another server finds
// it.
//
// Thread safety: the decode thread, which none of them holds up.
class Checkpoints {
 public:
  virtual ~Checkpoints() = default;

  // The text of `request` up to a chunk boundary, prompt and output: `key`
  // stands for its `position` tokens. Returns a state that is not needed any
  // more: the one before, or this one. Null if there is none.
  virtual std::shared_ptr<const std::string> Put(
      const Request& request, const PrefixKey& key, int64_t position,
      std::shared_ptr<const std::string> state) = 0;
  // The request is over, and its checkpoint of no more use.
  virtual void Drop(const Request& request) = 0;
};

}  // namespace flash

#endif  // SERVER_SCHEDULER_PREFIX_STATES_H_
