// Makes snapshots of outputs, between two steps.

#ifndef SERVER_SCHEDULER_TEXT_SAVER_H_
#define SERVER_SCHEDULER_TEXT_SAVER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/model/language_model.h"
#include "server/scheduler/free_slots.h"
#include "server/scheduler/live_request.h"
#include "server/scheduler/slot_states.h"
#include "server/scheduler/snapshot.h"

namespace flash {

// Thread safety: the decode thread only.
class TextSaver {
 public:
  // Both are borrowed.
  TextSaver(const LanguageModel* model, SlotStates* states)
      : model_(*model), states_(*states) {}

  using Taken = absl::StatusOr<std::shared_ptr<const Snapshot>>;

  // The text of an output that is not kOver, at whatever point it is.
  // FAILED_PRECONDITION: it ends in hidden text that cannot be cut off, or too
  // much of it is yet to be run. INTERNAL: the device has failed, as
  // SlotStates then knows. REQUIRES: no Keep() is due.
  Taken Take(const LiveRequest& request, const LiveOutput& output);
  // The text of one that is.
  Taken Take(const FreeSlots::Found& found);

  // What an output leaves to be taken later while its slot is free. `taken`:
  // what Take() said now, if it was called.
  FinishedText Leave(const LiveRequest& request, const LiveOutput& output,
                     const Taken* taken) const;

 private:
  // Where the state is from which an output's text is gone on with.
  struct Source {
    int slot = -1;  // -1: it is saved already
    SavedState saved;
  };
  Source SourceOf(const LiveRequest& request, const LiveOutput& output) const;
  // All but the state, which is after `position` tokens.
  static absl::StatusOr<Snapshot> TextAfter(const LiveRequest& request,
                                            const LiveOutput& output,
                                            int64_t position);

  const LanguageModel& model_;
  SlotStates& states_;
};

}  // namespace flash

#endif  // SERVER_SCHEDULER_TEXT_SAVER_H_
