// The slots that nobody has, and what the last output of each has left there.

#ifndef SERVER_SCHEDULER_FREE_SLOTS_H_
#define SERVER_SCHEDULER_FREE_SLOTS_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/scheduler/snapshot.h"

namespace flash {

// The text of an output that is over and whose slot is free: it can be saved
// until somebody takes the slot.
struct FinishedText {
  std::string owner;
  std::string request_id;
  int output_index = 0;
  // Its state is null if it is what the slot holds. Or why it cannot be saved.
  absl::StatusOr<std::shared_ptr<const Snapshot>> text =
      std::shared_ptr<const Snapshot>();
};

// Slots are handed out in the order in which they were given back.
//
// Thread safety: one thread at a time.
class FreeSlots {
 public:
  explicit FreeSlots(int num_slots);

  int size() const { return static_cast<int>(slots_.size()); }

  struct Slot {
    int slot = 0;
    std::optional<FinishedText> left;
  };
  // REQUIRES: size() > 0. What was left there cannot be found any more.
  Slot Take();
  void Give(int slot, std::optional<FinishedText> left = std::nullopt);

  struct Found {
    int slot = 0;
    const FinishedText* left = nullptr;
  };
  // The newest with these names; no slot is taken by that. Valid until the
  // next Take() or Give().
  std::optional<Found> Find(std::string_view owner, std::string_view request_id,
                            int output_index) const;

 private:
  std::deque<Slot> slots_;  // the next one to be taken first
};

}  // namespace flash

#endif  // SERVER_SCHEDULER_FREE_SLOTS_H_
