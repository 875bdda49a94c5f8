#include "server/scheduler/text_saver.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/model/sampling.h"

namespace flash {

TextSaver::Taken TextSaver::Take(const LiveRequest& request,
                                 const LiveOutput& output) {
  Source source = SourceOf(request, output);
  absl::StatusOr<Snapshot> text =
      TextAfter(request, output, source.saved.position);
  if (!text.ok()) return text.status();
  text->state = std::move(source.saved.state);
  if (source.slot >= 0 && text->position > 0) {
    text->state = states_.Save(source.slot);
    if (text->state == nullptr) return DeviceFailure(states_.device_status());
  }
  return std::make_shared<const Snapshot>(*std::move(text));
}

TextSaver::Taken TextSaver::Take(const FreeSlots::Found& found) {
  const Taken& text = found.left->text;
  if (!text.ok() || (*text)->state != nullptr || (*text)->position == 0) {
    return text;
  }
  Snapshot whole = **text;
  whole.state = states_.Save(found.slot);
  if (whole.state == nullptr) return DeviceFailure(states_.device_status());
  return std::make_shared<const Snapshot>(std::move(whole));
}

FinishedText TextSaver::Leave(const LiveRequest& request,
                              const LiveOutput& output,
                              const Taken* taken) const {
  FinishedText left = {.owner = request.request().owner,
                       .request_id = request.request().id,
                       .output_index = output.index};
  const Source source = SourceOf(request, output);
  if (source.slot < 0) {
    // Only of what is to be saved is a state kept outside of its slot.
    if (taken != nullptr) left.text = *taken;
    return left;
  }
  absl::StatusOr<Snapshot> text =
      TextAfter(request, output, source.saved.position);
  if (text.ok()) {
    left.text = std::make_shared<const Snapshot>(*std::move(text));
  } else {
    left.text = text.status();
  }
  return left;
}

TextSaver::Source TextSaver::SourceOf(const LiveRequest& request,
                                      const LiveOutput& output) const {
  if (!request.begun()) return {-1, request.beginning()};
  const int slot =
      output.phase == Phase::kWaiting ? request.prompt_slot() : output.slot;
  const int64_t position = model_.position(slot);
  if (output.rewind.has_value() && position > output.rewind->floor()) {
    return {-1, output.rewind->base()};
  }
  return {slot, {position, nullptr}};
}

absl::StatusOr<Snapshot> TextSaver::TextAfter(const LiveRequest& request,
                                              const LiveOutput& output,
                                              int64_t position) {
  if (output.hides_text) {
    return absl::FailedPreconditionError(
        "the output ended in stop text that is hidden, which only a request "
        "that is to be saved can cut off");
  }
  const int64_t num_tokens = output.recent.num_tokens();
  if (!output.recent.Knows(position)) {
    return absl::FailedPreconditionError(
        absl::StrCat("of ", num_tokens, " tokens only ", position,
                     " have been run; those that are left may be at most ",
                     kMaxPenaltyWindow));
  }
  Snapshot text = request.Text(output);
  text.position = position;
  text.pending = output.recent.Ids(position, num_tokens);
  return text;
}

}  // namespace flash
