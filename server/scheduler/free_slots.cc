#include "server/scheduler/free_slots.h"

#include <utility>

#include "kernels/check.h"

namespace flash {

FreeSlots::FreeSlots(int num_slots) {
  for (int slot = 0; slot < num_slots; ++slot) Give(slot);
}

FreeSlots::Slot FreeSlots::Take() {
  FLASH_CHECK(!slots_.empty());
  Slot slot = std::move(slots_.front());
  slots_.pop_front();
  return slot;
}

void FreeSlots::Give(int slot, std::optional<FinishedText> left) {
  slots_.push_back({slot, std::move(left)});
}

std::optional<FreeSlots::Found> FreeSlots::Find(std::string_view owner,
                                                std::string_view request_id,
                                                int output_index) const {
  for (auto slot = slots_.rbegin(); slot != slots_.rend(); ++slot) {
    if (slot->left.has_value() && slot->left->owner == owner &&
        slot->left->request_id == request_id &&
        slot->left->output_index == output_index) {
      return Found{slot->slot, &*slot->left};
    }
  }
  return std::nullopt;
}

}  // namespace flash
