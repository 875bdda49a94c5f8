#include "server/memory_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/scheduler/state_wiper.h"
#include "server/sessions/snapshot_codec.h"

namespace flash {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// On a disk, where nobody says.
constexpr int64_t kStoreBytesOnDisk = int64_t{16} << 30;

// More streams than these make a processor's step slow and no token cheaper,
// but a card's step is short.
constexpr int64_t kMaxAutomaticSlots = 64;
constexpr int64_t kMaxAutomaticSlotsOfCard = 256;
constexpr int64_t kMaxTransfers = 16;
constexpr int64_t kMaxCheckpoints = 256 * kMiB;
// Where that is more than two for each slot: of small models many may wait.
constexpr int64_t kLeastRequests = 256 * kMiB;

// Copies of a session that a worker makes on its way to the store or from it:
// what is compressed, what is stored, what is decoded.
constexpr int64_t kCopiesInHand = 3;
// Of a transfer: while it grows, an import has the bytes twice.
constexpr int64_t kCopiesInTransfer = 2;

// What sessions take that does not depend on the number of slots.
void PlanSessions(const ServerConfig& config, int64_t usable,
                  const StateLayout& layout, MemoryPlan& plan) {
  const bool is_in_memory = config.session_store == "memory";
  plan.max_store_bytes = config.session_store_bytes.value_or(
      is_in_memory ? usable / 8 : kStoreBytesOnDisk);
  if (is_in_memory) plan.session_store = plan.max_store_bytes;
  plan.session_cache = config.session_cache_bytes.value_or(usable / 16);
  const int64_t most = MostSessionBytes(layout.slot_bytes);
  plan.max_transfers = static_cast<int>(std::clamp<int64_t>(
      usable / 32 / (kCopiesInTransfer * most), 1, kMaxTransfers));
  plan.session_transfers =
      (kCopiesInTransfer * plan.max_transfers + kCopiesInHand * kStoreWorkers) *
      most;
  if (config.checkpoint_every_tokens > 0) {
    // One that waits and one that is being written, if nothing else.
    plan.checkpoints = std::max(2 * layout.boundary_bytes,
                                std::min(kMaxCheckpoints, usable / 32));
  }
}

// What must be there for a session's request, and is for one in every slot.
int64_t BytesOfRequest(const ServerConfig& config, const StateLayout& layout) {
  return config.session_store.empty() ? 0
                                      : 2 * MostSessionBytes(layout.slot_bytes);
}

// As many as the card holds, or as are wanted.
absl::StatusOr<int64_t> SlotsOfCard(std::optional<int> wanted, int64_t free,
                                    int64_t slot_bytes) {
  const int64_t room = wanted.has_value() ? free : free - free / 10;
  const int64_t most = room / slot_bytes;
  if (most >= wanted.value_or(1)) {
    return wanted.value_or(std::min(most, kMaxAutomaticSlotsOfCard));
  }
  return absl::ResourceExhaustedError(
      absl::StrCat(wanted.value_or(1), " slots of ", slot_bytes,
                   " bytes do not fit into the card's memory that is left, ",
                   room, " bytes"));
}

// Divides the `left` bytes of the host; `spare` of them are not for automatic
// slots.
absl::Status PlanSlots(const ServerConfig& config, int64_t left, int64_t spare,
                       std::optional<int64_t> card, const StateLayout& layout,
                       MemoryPlan& plan) {
  int64_t most_slots = kMaxAutomaticSlots;
  if (card.has_value()) {
    const auto fit = SlotsOfCard(config.slots, *card, layout.slot_bytes);
    if (!fit.ok()) return fit.status();
    most_slots = *fit;
  }
  const bool keeps_states =
      !config.session_store.empty() || plan.prefix_cache > 0;
  const int64_t beside = keeps_states ? layout.boundary_bytes : 0;
  const int64_t wiped =
      keeps_states ? StateWiper::kMaxStates * layout.slot_bytes : 0;
  left -= wiped;
  // Of the host's memory.
  const int64_t slot = (card.has_value() ? 0 : layout.slot_bytes) + beside;
  const int64_t request = BytesOfRequest(config, layout);
  if (left < slot + request) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "one slot takes ", slot + request, " bytes with what goes with it"));
  }
  const int64_t room =
      config.slots.has_value() ? left : std::max(left - spare, slot + request);
  // A slot on a card may want nothing of the host.
  const int64_t fit = room / std::max<int64_t>(slot + request, 1);
  const int64_t num_slots = config.slots.value_or(std::min(fit, most_slots));
  if (num_slots > (left - request) / std::max<int64_t>(slot, 1)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        num_slots, " slots of ", slot, " bytes do not fit into ", left));
  }
  plan.num_slots = static_cast<int>(num_slots);
  plan.slots = num_slots * layout.slot_bytes;
  plan.beside_slots = num_slots * beside + wiped;
  if (request > 0) {
    plan.session_requests = std::min(
        room - num_slots * slot, std::max(num_slots * request, kLeastRequests));
  }
  return absl::OkStatus();
}

}  // namespace

int64_t MostSessionBytes(int64_t slot_bytes) {
  // Beside what a slot holds: what compression adds to what it cannot make
  // smaller, what Save() writes for each layer, and the header.
  return slot_bytes + slot_bytes / 64 + kMostStateHeadBytes +
         static_cast<int64_t>(SnapshotCodec::kMaxHeaderBytes);
}

absl::StatusOr<MemoryPlan> PlanMemory(const ServerConfig& config,
                                      const UsableMemory& memory,
                                      const StateLayout& layout) {
  const int64_t usable = memory.host;
  if (layout.slot_bytes > usable) {  // or a save of it
    return absl::ResourceExhaustedError(
        absl::StrCat("one slot takes ", layout.slot_bytes, " bytes, and ",
                     usable, " of the host's memory are left"));
  }
  MemoryPlan plan;
  if (!config.session_store.empty()) {
    PlanSessions(config, usable, layout, plan);
  }
  plan.prefix_cache = config.prefix_cache_bytes.value_or(usable / 8);
  const int64_t left = usable - plan.session_store - plan.session_cache -
                       plan.session_transfers - plan.checkpoints -
                       plan.prefix_cache;
  const absl::Status planned =
      PlanSlots(config, left, /*spare=*/usable / 4, memory.card, layout, plan);
  if (planned.ok()) return plan;
  return absl::ResourceExhaustedError(absl::StrCat(
      "sessions in memory (", plan.session_store, " bytes), their cache (",
      plan.session_cache, ") and transfers (", plan.session_transfers,
      "), checkpoints (", plan.checkpoints, ") and the prefix cache (",
      plan.prefix_cache, ") leave nothing for slots, or too little, of the ",
      usable, " bytes that are left after the weights: ", planned.message()));
}

std::vector<std::pair<std::string, int64_t>> PartsOf(const MemoryPlan& plan) {
  return {{"slots", plan.slots},
          {"beside_slots", plan.beside_slots},
          {"prefix_cache", plan.prefix_cache},
          {"session_store", plan.session_store},
          {"session_cache", plan.session_cache},
          {"session_requests", plan.session_requests},
          {"session_transfers", plan.session_transfers},
          {"checkpoints", plan.checkpoints}};
}

}  // namespace flash
