#include "server/scheduler/slot_states.h"

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "server/model/state_bytes.h"

namespace flash {

absl::Status DeviceFailure(const absl::Status& why) {
  return absl::InternalError(
      absl::StrCat(kDeviceFailedWords, ": ", std::string(why.message())));
}

std::shared_ptr<const std::string> SlotStates::Save(int slot) {
  absl::StatusOr<std::string> state = model_.Save(slot);
  if (state.ok()) return ShareState(*std::move(state));
  Note(state.status());
  return nullptr;
}

absl::Status SlotStates::Load(int slot, std::string_view state) {
  const absl::Status loaded = model_.Load(slot, state);
  if (!loaded.ok() && !absl::IsInvalidArgument(loaded)) Note(loaded);
  return loaded;
}

void SlotStates::Note(const absl::Status& failure) {
  if (device_status_.ok()) device_status_ = failure;
}

}  // namespace flash
