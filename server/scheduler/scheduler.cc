#include "server/scheduler/scheduler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/check.h"
#include "server/scheduler/interruption.h"

namespace flash {
namespace {

int MaxStepRows(const EngineOptions& options, const LanguageModel& model) {
  return options.max_step_rows > 0
             ? std::min(options.max_step_rows, model.max_rows())
             : model.max_rows();
}

// Of a request that is not over: its time was up in the queue.
bool HasNoSlot(const std::unique_ptr<LiveRequest>& request) {
  return std::all_of(request->outputs().begin(), request->outputs().end(),
                     [](const LiveOutput& output) { return output.slot < 0; });
}

}  // namespace

Scheduler::Scheduler(const EngineOptions& options, LanguageModel* model,
                     const Tokenizer* tokenizer, ParallelFor parallel_for,
                     RequestQueue* queue)
    : options_(options),
      model_(*model),
      tokenizer_(*tokenizer),
      queue_(*queue),
      batch_builder_({.max_rows = MaxStepRows(options, *model),
                      .max_logits = model->max_logits_rows(),
                      .chunk_size = model->chunk_size()}),
      row_budget_(options.target_step_time),
      sampler_(model->vocab_size(), options.num_samplers, *tokenizer,
               std::move(parallel_for)),
      states_(model),
      saver_(model, &states_),
      boundary_states_(options, model, &states_, &wiper_),
      free_slots_(model->num_slots()) {
  live_.reserve(model->num_slots());
  stats_.num_slots = model->num_slots();
  CountRequests();
}

bool Scheduler::RunOnce() {
  if (!device_status_.ok()) return false;
  if (!states_.device_status().ok()) {  // over a copy since the last step
    FailDevice(states_.device_status());
    return false;
  }
  num_copies_ = 0;
  Inspect();
  bool busy = Retire();
  busy = Admit() || busy;
  busy = TakePrior() || busy;
  FinishOverdue();
  busy = EndEmptyPrompts() || busy;
  busy = Retire() || busy;
  const bool has_stepped = Step();
  if (has_stepped) Deliver();
  // Last, so that no token waits for a copy.
  busy = CopyStates() || has_stepped || busy;
  if (has_stepped) {
    // All that the streams have waited for; the sampling belongs to it.
    row_budget_.Record(batch_.num_decoders, batch_.num_prompt_rows,
                       options_.now() - step_start_);
  }
  busy = Retire() || busy;
  if (!states_.device_status().ok()) FailDevice(states_.device_status());
  CountRequests();
  return busy && device_status_.ok();
}

void Scheduler::Inspect() {
  const Clock::time_point now = options_.now();
  for (const std::unique_ptr<LiveRequest>& request : live_) {
    const absl::Status interruption = Interruption(request->request(), now);
    if (!interruption.ok()) {
      request->Fail(interruption);
      continue;
    }
    request->AskWhetherFull(now);
  }
  FinishOverdue();
}

void Scheduler::FinishOverdue() {
  const Clock::time_point now = options_.now();
  for (const std::unique_ptr<LiveRequest>& request : live_) {
    if (request->over() || !request->prior_taken()) continue;
    if (TimeLimitReached(request->queued(), now)) FinishForTime(*request);
  }
}

void Scheduler::FinishForTime(LiveRequest& request) {
  for (LiveOutput& output : request.outputs()) {
    if (output.phase == Phase::kOver) continue;
    if (!output.finished.has_value()) {
      request.Finish(output, FinishReason::kTimeLimit);
    }
    // CopyStates() does those whose state is to be copied, so many a turn.
    const bool is_copied =
        request.request().save && output.phase == Phase::kDecode;
    if (!is_copied) Conclude(request, output);
  }
}

bool Scheduler::Admit() {
  bool changed = EndQueued();
  const auto fits = [&](const QueuedRequest& queued) {
    return queued.request->num_outputs <= free_slots_.size();
  };
  while (std::optional<QueuedRequest> queued = queue_.PopIf(fits)) {
    changed = true;
    LiveRequest& request = GoLive(*std::move(queued));
    for (LiveOutput& output : request.outputs()) {
      FreeSlots::Slot slot = free_slots_.Take();
      output.slot = slot.slot;
      if (slot.left.has_value() && slot.left->text.ok()) {
        wiper_.Drop(*std::move(slot.left->text));
      }
    }
    boundary_states_.Find(request);
    Accept(request);
  }
  return changed;
}

bool Scheduler::EndQueued() {
  const Clock::time_point now = options_.now();
  // The others stay where the queue's limits count their prior ids.
  int64_t room =
      model_.num_slots() - std::count_if(live_.begin(), live_.end(), HasNoSlot);
  const auto leaves = [&](const QueuedRequest& queued) {
    if (!Interruption(*queued.request, now).ok()) return true;
    if (!TimeLimitReached(queued, now)) return false;
    return queued.request->prior_output_ids.empty() || room-- > 0;
  };
  std::vector<QueuedRequest> leaving = queue_.RemoveIf(leaves);
  for (QueuedRequest& queued : leaving) {
    const absl::Status interruption = Interruption(*queued.request, now);
    if (!interruption.ok()) {
      FailQueued(queued, interruption);
    } else {  // its time limit: it finishes, with what it brought
      Accept(GoLive(std::move(queued)));
    }
  }
  return !leaving.empty();
}

LiveRequest& Scheduler::GoLive(QueuedRequest queued) {
  live_.push_back(
      std::make_unique<LiveRequest>(std::move(queued), tokenizer_, options_));
  return *live_.back();
}

void Scheduler::Accept(LiveRequest& request) {
  Accepted accepted;
  accepted.seed = request.request().sampling.seed;
  accepted.prompt_tokens =
      static_cast<int64_t>(request.request().prompt.size());
  accepted.cached_prompt_tokens = request.cached_prompt_tokens();
  request.sink().OnAccepted(accepted);
}

void Scheduler::FailQueued(const QueuedRequest& queued,
                           const absl::Status& status) {
  FLASH_CHECK(!status.ok());
  Usage usage;
  usage.prompt_tokens = static_cast<int64_t>(queued.request->prompt.size());
  usage.longest_tokens = usage.prompt_tokens;
  ++stats_.failed_requests;
  queued.request->sink->OnDone(status, usage,
                               {.queue = options_.now() - queued.submitted});
}

bool Scheduler::TakePrior() {
  const auto has_prior_left = [](const std::unique_ptr<LiveRequest>& request) {
    return !request->prior_taken();
  };
  int64_t num_requests =
      std::count_if(live_.begin(), live_.end(), has_prior_left);
  int64_t num_left = kMaxPriorIds;
  for (const std::unique_ptr<LiveRequest>& request : live_) {
    if (!has_prior_left(request)) continue;
    // What a short list leaves is shared by those after it.
    const int64_t share = (num_left + num_requests - 1) / num_requests;
    num_left -= request->TakePrior(share);
    --num_requests;
  }
  return num_left < kMaxPriorIds;
}

bool Scheduler::Step() {
  batch_builder_.Build(live_, row_budget_, batch_);
  if (batch_.runs.empty()) return false;
  // Begun only now: so the time that it takes is spread over the steps. If one
  // cannot be, the others' step is built anew.
  for (const Batch::Owner& owner : batch_.owners) {
    if (owner.request->begun() || Begin(*owner.request)) continue;
    Retire();
    return Step();
  }
  step_start_ = options_.now();
  for (const Batch::Owner& owner : batch_.owners) {
    FLASH_CHECK(model_.position(owner.output->slot) ==
                owner.request->position(*owner.output));
    owner.request->MarkStep(step_start_);
  }
  const absl::Status status = model_.Step(batch_.runs, results_);
  if (!status.ok()) {
    FailDevice(status);
    return false;
  }
  FLASH_CHECK(results_.size() == batch_.runs.size());
  ++stats_.steps;
  stats_.step_rows += batch_.num_rows;
  stats_.last_step_rows = batch_.num_rows;
  step_end_ = options_.now();
  stats_.last_step = step_end_ - step_start_;
  return true;
}

bool Scheduler::Begin(LiveRequest& request) {
  const int slot = request.outputs().front().slot;
  const SavedState& beginning = request.beginning();
  if (beginning.state == nullptr) {
    model_.Reset(slot);
    request.MarkBegun();
    return true;
  }
  absl::Status loaded = states_.Load(slot, *beginning.state);
  if (!states_.device_status().ok()) {
    request.Fail(DeviceFailure(states_.device_status()));
    return false;
  }
  if (loaded.ok() && model_.position(slot) != beginning.position) {
    loaded = absl::InvalidArgumentError(
        absl::StrCat("it is after ", model_.position(slot), " tokens, not ",
                     beginning.position));
  }
  if (loaded.ok()) {
    wiper_.Drop(request.MarkBegun());
    return true;
  }
  if (request.request().start == nullptr) {
    request.BeginAnew();
    return false;
  }
  request.Fail(absl::DataLossError(
      absl::StrCat("what was saved cannot be gone on with: ",
                   std::string(loaded.message()))));
  return false;
}

bool Scheduler::EndEmptyPrompts() {
  bool changed = false;
  for (const std::unique_ptr<LiveRequest>& request : live_) {
    const LiveOutput& first = request->outputs().front();
    if (request->over() || !request->prior_taken() || first.slot < 0 ||
        first.phase != Phase::kPrompt || request->num_ids_left(first) > 0) {
      continue;
    }
    changed = true;
    if (!request->begun() && !Begin(*request)) continue;
    request->MarkStep(options_.now());
    EndPrompt(*request);
    Fork({request.get(), first.slot});
  }
  if (changed) ConcludeFinished();
  return changed;
}

void Scheduler::FailDevice(const absl::Status& status) {
  device_status_ = status;
  EndAll(DeviceFailure(status), absl::UnavailableError(kDeviceFailedWords));
}

void Scheduler::EndAll(const absl::Status& running,
                       const absl::Status& queued) {
  queue_.Close(queued);
  for (QueuedRequest& each :
       queue_.RemoveIf([](const QueuedRequest&) { return true; })) {
    FailQueued(each, queued);
  }
  for (const std::unique_ptr<LiveRequest>& request : live_) {
    request->Fail(running);
  }
  Retire();
  CountRequests();
}

bool Scheduler::CopyStates() {
  const int before = num_copies_;
  while (num_copies_ < kMaxStateCopies && boundary_states_.CopyOne()) {
    ++num_copies_;
  }
  return ConcludeFinished() || num_copies_ > before;
}

bool Scheduler::ConcludeFinished() {
  bool changed = false;
  for (const std::unique_ptr<LiveRequest>& request : live_) {
    // What is due may be the way back that the end needs.
    if (!request->outcome().ok() || request->num_copies_due() > 0) continue;
    for (LiveOutput& output : request->outputs()) {
      if (output.phase != Phase::kDecode || !output.finished.has_value()) {
        continue;
      }
      if (request->request().save && num_copies_ >= kMaxStateCopies) continue;
      changed = true;
      Conclude(*request, output);
    }
  }
  return changed;
}

void Scheduler::Conclude(LiveRequest& request, LiveOutput& output) {
  std::optional<TextSaver::Taken> taken;
  if (request.request().save) {
    taken = saver_.Take(request, output);
    // It ends as all others are about to: what it would be told is in no
    // session.
    if (!states_.device_status().ok()) {
      request.Fail(DeviceFailure(states_.device_status()));
      return;
    }
    ++num_copies_;
  }
  // Of one whose time was up before the prompt's end the slot holds nothing.
  std::optional<FinishedText> left;
  if (output.phase == Phase::kDecode && !request.request().id.empty()) {
    left = saver_.Leave(request, output, taken.has_value() ? &*taken : nullptr);
  }
  if (taken.has_value() && taken->ok()) {
    output.finished->snapshot = **std::move(taken);
  }
  request.sink().OnFinished(*std::move(output.finished));
  output.phase = Phase::kOver;
  if (output.slot >= 0) {
    free_slots_.Give(std::exchange(output.slot, -1), std::move(left));
  }
}

bool Scheduler::Retire() {
  const auto over = [this](const std::unique_ptr<LiveRequest>& request) {
    if (!request->over()) return false;
    for (LiveOutput& output : request->outputs()) {
      if (output.slot >= 0) free_slots_.Give(std::exchange(output.slot, -1));
    }
    Done(*request);
    return true;
  };
  return std::erase_if(live_, over) > 0;
}

void Scheduler::Done(LiveRequest& request) {
  boundary_states_.Drop(request);
  if (request.outcome().ok()) {
    ++stats_.finished_requests;
  } else {
    ++stats_.failed_requests;
  }
  request.sink().OnDone(request.outcome(), request.usage(),
                        request.timings(options_.now()));
  for (std::shared_ptr<const void>& state : request.TakeStates()) {
    wiper_.Drop(std::move(state));
  }
}

void Scheduler::CountRequests() {
  stats_.running_requests = static_cast<int64_t>(live_.size());
  stats_.free_slots = free_slots_.size();
  stats_.blocked_requests =
      std::count_if(live_.begin(), live_.end(),
                    [](const auto& request) { return request->full(); });
}

TextSaver::Taken Scheduler::TakeSnapshot(std::string_view owner,
                                         std::string_view request_id,
                                         int output_index) {
  const auto is_meant = [&](const Request& request) {
    return request.owner == owner && request.id == request_id &&
           output_index >= 0 && output_index < request.num_outputs;
  };
  if (!device_status_.ok()) {
    return absl::UnavailableError(kDeviceFailedWords);
  }
  for (const std::unique_ptr<LiveRequest>& request : live_) {
    if (!is_meant(request->request())) continue;
    const LiveOutput& output = request->outputs()[output_index];
    if (output.phase == Phase::kOver) break;
    if (output.phase == Phase::kDecode) return saver_.Take(*request, output);
    return absl::FailedPreconditionError(absl::StrCat(
        "request ", std::string(request_id), " has generated nothing yet"));
  }
  if (const auto found = free_slots_.Find(owner, request_id, output_index)) {
    return saver_.Take(*found);
  }
  bool is_queued = false;
  queue_.ForEach([&](const QueuedRequest& queued) {
    is_queued = is_queued || is_meant(*queued.request);
  });
  if (is_queued) {
    return absl::FailedPreconditionError(absl::StrCat(
        "request ", std::string(request_id), " waits in the queue"));
  }
  return absl::NotFoundError(
      absl::StrCat("there is no request ", std::string(request_id),
                   " with an output ", output_index, " here, or no more"));
}

bool Scheduler::idle() const {
  return live_.empty() && queue_.num_requests() == 0;
}

Clock::time_point Scheduler::next_wakeup() const {
  Clock::time_point wakeup = Clock::time_point::max();
  for (const std::unique_ptr<LiveRequest>& request : live_) {
    wakeup = std::min(wakeup, request->NextWakeup());
  }
  queue_.ForEach([&](const QueuedRequest& queued) {
    wakeup = std::min(wakeup, NextInterruption(queued));
  });
  return wakeup;
}

}  // namespace flash
