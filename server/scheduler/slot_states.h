// States on their way out of slots and into them, between two steps.

#ifndef SERVER_SCHEDULER_SLOT_STATES_H_
#define SERVER_SCHEDULER_SLOT_STATES_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "server/model/language_model.h"

namespace flash {

// How the messages of requests begin whose device has failed: by them the
// service tells these from others of the same code.
inline constexpr char kDeviceFailedWords[] = "the device has failed";

// What a request ends with whose device has failed.
absl::Status DeviceFailure(const absl::Status& why);

// Remembers when the device fails over a copy: it is no state then, and nobody
// may take it for one.
//
// Thread safety: the decode thread only.
class SlotStates {
 public:
  // `model` is borrowed.
  explicit SlotStates(LanguageModel* model) : model_(*model) {}

  // The slot's state; null if the device has failed. REQUIRES: no Keep() is
  // due.
  std::shared_ptr<const std::string> Save(int slot);

  // As LanguageModel::Load().
  absl::Status Load(int slot, std::string_view state);

  // OK, or how the device failed first, as the model put it.
  const absl::Status& device_status() const { return device_status_; }

 private:
  void Note(const absl::Status& failure);

  LanguageModel& model_;
  absl::Status device_status_;
};

}  // namespace flash

#endif  // SERVER_SCHEDULER_SLOT_STATES_H_
