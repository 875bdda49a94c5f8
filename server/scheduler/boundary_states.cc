#include "server/scheduler/boundary_states.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kernels/check.h"

namespace flash {

void BoundaryStates::Find(LiveRequest& request) {
  const std::vector<PrefixKey>& keys = request.queued().prefix_keys;
  // Whoever wants the prompt's logprobs wants it to be run.
  if (options_.prefix_states == nullptr || request.wants_prompt_logprobs()) {
    return;
  }
  // At least one id is left, whose logits are to come.
  const int64_t num_ids = request.num_ids_to_begin_with();
  const size_t num_chunks =
      num_ids > 0 ? static_cast<size_t>((num_ids - 1) / model_.chunk_size())
                  : 0;
  const auto found = options_.prefix_states->Find(
      std::span(keys).first(std::min(num_chunks, keys.size())));
  if (!found.has_value()) return;
  request.BeginAt(
      {static_cast<int64_t>(found->num_chunks) * model_.chunk_size(),
       found->state});
}

void BoundaryStates::Visit(LiveRequest& request, LiveOutput& output,
                           bool is_prompt) {
  const int64_t position = model_.position(output.slot);
  const int chunk_size = model_.chunk_size();
  const size_t num_chunks = static_cast<size_t>(position / chunk_size);
  Due due;
  due.request = &request;
  due.output = &output;
  for (LiveOutput& each : request.outputs()) {
    if (!is_prompt && &each != &output) continue;
    if (each.rewind.has_value() && each.rewind->Wants(position, chunk_size)) {
      due.bases.push_back(&each);
    }
  }
  const std::vector<PrefixKey>& keys = request.queued().prefix_keys;
  due.is_prefix = options_.prefix_states != nullptr &&
                  num_chunks <= keys.size() &&
                  options_.prefix_states->Wants(keys, num_chunks);
  // Of one that is over the tokens may be cut back to before this boundary.
  if (!output.finished.has_value() && HasCheckpoints(request.request())) {
    MoveKey(request, output, num_chunks);
    due.is_checkpoint = position >= request.checkpoint_progress().next_position;
  }
  if (due.bases.empty() && !due.is_prefix && !due.is_checkpoint) return;
  request.AddCopiesDue(1);
  due_.push_back(std::move(due));
}

bool BoundaryStates::CopyOne() {
  while (!due_.empty()) {
    const Due due = std::move(due_.front());
    due_.pop_front();
    due.request->AddCopiesDue(-1);
    // It may have failed, or its time may be up.
    if (!due.request->outcome().ok() || due.output->slot < 0) continue;
    std::shared_ptr<const std::string> state = states_.Save(due.output->slot);
    if (state == nullptr) return false;  // the device has failed
    Give(due, std::move(state));
    return true;
  }
  return false;
}

void BoundaryStates::Give(const Due& due,
                          std::shared_ptr<const std::string> state) {
  LiveRequest& request = *due.request;
  const int64_t position = model_.position(due.output->slot);
  for (LiveOutput* const output : due.bases) {
    wiper_.Drop(output->rewind->SetBase({position, state}).state);
  }
  if (due.is_prefix) {
    const size_t num_chunks =
        static_cast<size_t>(position / model_.chunk_size());
    for (auto& evicted : options_.prefix_states->Put(
             request.queued().prefix_keys, num_chunks, state)) {
      wiper_.Drop(std::move(evicted));
    }
  }
  if (due.is_checkpoint) {
    CheckpointProgress& progress = request.checkpoint_progress();
    progress.next_position = position + options_.checkpoint_every_tokens;
    progress.has_put = true;
    wiper_.Drop(options_.checkpoints->Put(request.request(), progress.key,
                                          position, state));
  }
  wiper_.Drop(std::move(state));  // if nobody has kept it
}

void BoundaryStates::Drop(const LiveRequest& request) {
  std::erase_if(due_, [&](const Due& due) { return due.request == &request; });
  // One that goes on elsewhere, or was cut off, may yet need it: also one whose
  // device has failed, which is INTERNAL. It expires by itself.
  const absl::Status& outcome = request.outcome();
  if (!HasCheckpoints(request.request()) || absl::IsCancelled(outcome) ||
      absl::IsUnavailable(outcome) || absl::IsInternal(outcome)) {
    return;
  }
  const bool was_resumed = !request.request().prior_output_ids.empty();
  if (request.checkpoint_progress().has_put || was_resumed) {
    options_.checkpoints->Drop(request.request());
  }
}

bool BoundaryStates::HasCheckpoints(const Request& request) const {
  return options_.checkpoints != nullptr && options_.prefix_states != nullptr &&
         options_.checkpoint_every_tokens > 0 && request.num_outputs == 1 &&
         request.start == nullptr && !request.id.empty() &&
         model_.chunk_size() <= kMaxPenaltyWindow;  // the tokens that are kept
}

void BoundaryStates::MoveKey(LiveRequest& request, const LiveOutput& output,
                             size_t num_chunks) const {
  const std::vector<PrefixKey>& keys = request.queued().prefix_keys;
  CheckpointProgress& progress = request.checkpoint_progress();
  if (progress.next_position == 0) {
    progress.next_position = options_.checkpoint_every_tokens;
  }
  if (num_chunks <= keys.size()) {
    progress.key = keys[num_chunks - 1];
    return;
  }
  // A boundary that only what was generated leads to; the ones before it have
  // all been visited.
  if (num_chunks == 1) {
    progress.key =
        options_.prefix_states->KeyOfNothing(request.request().owner);
  } else if (num_chunks == keys.size() + 1) {
    progress.key = keys.back();
  }
  const int64_t end = static_cast<int64_t>(num_chunks) * model_.chunk_size();
  progress.key = options_.prefix_states->KeyAfter(
      progress.key, output.recent.Ids(end - model_.chunk_size(), end));
}

}  // namespace flash
