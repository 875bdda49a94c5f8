// How the memory that is left after the weights is divided between slots,
// sessions, checkpoints and the prefix cache. All states are as large as the
// model makes them, whatever the texts, so this can be said at the start. Slots
// are in the memory of the device; all else is in the host's.

#ifndef SERVER_MEMORY_PLAN_H_
#define SERVER_MEMORY_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/model/decode_state.h"
#include "server/server_config.h"

namespace flash {

// In bytes, but for the counts.
struct MemoryPlan {
  int num_slots = 0;
  int64_t slots = 0;
  // For each slot the state that its output is to begin with, or its way back
  // to before a stop string, also after it is over; and what waits to be wiped.
  int64_t beside_slots = 0;
  int64_t prefix_cache = 0;

  // Without sessions these are 0.
  int64_t max_store_bytes = 0;  // wherever they are
  int64_t session_store = 0;    // of these, in memory
  int64_t session_cache = 0;
  // What requests go on from, and what they leave, until it is saved.
  int64_t session_requests = 0;
  // What exports and imports hold, and what the store's workers have in hand.
  int64_t session_transfers = 0;
  int max_transfers = 0;
  int64_t checkpoints = 0;  // that are not written yet
};

// What LanguageModel::Save() writes beside what a slot holds: a few bytes for
// each layer.
inline constexpr int64_t kMostStateHeadBytes = int64_t{64} << 10;

// The most bytes that a session has, or an export of one, in a model with such
// slots.
int64_t MostSessionBytes(int64_t slot_bytes);

// Sessions' calls that wait for the store at a time.
inline constexpr int kStoreWorkers = 4;

// What may still be taken, in bytes.
struct UsableMemory {
  int64_t host = 0;
  std::optional<int64_t> card = std::nullopt;  // where slots are, if it is one
};

// If nobody says how many slots there are, a quarter of the host's memory stays
// free (queues, connections and tokenizers want something too), and a tenth of
// a card's (its libraries take it when they need it).
//
// RESOURCE_EXHAUSTED if what `config` asks for is more than is usable; says
// what is too much.
absl::StatusOr<MemoryPlan> PlanMemory(const ServerConfig& config,
                                      const UsableMemory& usable,
                                      const StateLayout& layout);

// The parts that are bytes of memory, by name; `slots` may be a card's.
std::vector<std::pair<std::string, int64_t>> PartsOf(const MemoryPlan& plan);

}  // namespace flash

#endif  // SERVER_MEMORY_PLAN_H_
