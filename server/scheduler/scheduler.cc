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
               std::move(parallel_for)) {
  for (int slot = model->num_slots() - 1; slot >= 0; --slot) {
    free_slots_.push_back(slot);
  }
  live_.reserve(model->num_slots());
  stats_.num_slots = model->num_slots();
  CountRequests();
}

bool Scheduler::RunOnce() {
  if (!device_status_.ok()) return false;
  Inspect();
  bool busy = Retire();
  busy = Admit() || busy;
  busy = TakePrior() || busy;
  FinishOverdue();
  busy = Retire() || busy;
  if (Step()) {
    busy = true;
    Deliver();
    // All that the streams have waited for; the sampling belongs to it.
    row_budget_.Record(batch_.num_decoders, batch_.num_prompt_rows,
                       options_.now() - step_start_);
    Retire();
  }
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
    Conclude(request, output);
  }
}

bool Scheduler::Admit() {
  bool changed = EndQueued();
  const auto fits = [&](const QueuedRequest& queued) {
    return queued.request->num_outputs <=
           static_cast<int64_t>(free_slots_.size());
  };
  while (std::optional<QueuedRequest> queued = queue_.PopIf(fits)) {
    changed = true;
    for (LiveOutput& output : GoLive(*std::move(queued)).outputs()) {
      TakeSlot(output);
    }
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
      GoLive(std::move(queued));
    }
  }
  return !leaving.empty();
}

LiveRequest& Scheduler::GoLive(QueuedRequest queued) {
  live_.push_back(
      std::make_unique<LiveRequest>(std::move(queued), tokenizer_, options_));
  LiveRequest& request = *live_.back();
  Accepted accepted;
  accepted.seed = request.request().sampling.seed;
  accepted.prompt_tokens =
      static_cast<int64_t>(request.request().prompt.size());
  request.sink().OnAccepted(accepted);
  return request;
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
  step_start_ = options_.now();
  for (const Batch::Owner& owner : batch_.owners) {
    const int64_t position = owner.request->position(*owner.output);
    // Zeroed only now: so the time that it takes is spread over the steps.
    if (position == 0) model_.Reset(owner.output->slot);
    FLASH_CHECK(model_.position(owner.output->slot) == position);
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

void Scheduler::FailDevice(const absl::Status& status) {
  device_status_ = status;
  EndAll(absl::InternalError(absl::StrCat("the device has failed: ",
                                          std::string(status.message()))),
         absl::UnavailableError("the device has failed"));
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

void Scheduler::Deliver() {
  jobs_.clear();
  prompt_ends_.clear();
  drafted_.clear();
  for (size_t i = 0; i < batch_.runs.size(); ++i) {
    Account(batch_.owners[i], batch_.runs[i], results_[i]);
    if (batch_.runs[i].num_drafted > 0) drafted_.push_back(i);
  }
  RunJobs();
  for (const PromptEnd& end : prompt_ends_) EndPrompt(*end.request);
  for (TokenJob& job : jobs_) {
    if (job.output != nullptr) DeliverToken(job);
  }
  for (const PromptEnd& end : prompt_ends_) Fork(end);
  VerifyDrafts();
}

void Scheduler::RunJobs() {
  sampler_.Run(jobs_);
  for (const TokenJob& job : jobs_) {
    if (!job.status.ok()) job.request->Fail(job.status);
  }
}

void Scheduler::VerifyDrafts() {
  for (int64_t row = 1; !drafted_.empty(); ++row) {
    jobs_.clear();
    std::erase_if(drafted_, [&](size_t index) {
      const Batch::Owner& owner = batch_.owners[index];
      const bool was_drawn = WasDrawn(index, row);
      if (was_drawn) {
        AddSampleJob(*owner.request, *owner.output, results_[index], row);
      } else {
        KeepDrafts(index, row);
      }
      return !was_drawn;
    });
    RunJobs();
    for (TokenJob& job : jobs_) DeliverToken(job);
  }
}

bool Scheduler::WasDrawn(size_t index, int64_t row) const {
  const Batch::Owner& owner = batch_.owners[index];
  const std::span<const int32_t> tokens = batch_.runs[index].tokens;
  return owner.request->outcome().ok() &&
         owner.output->phase == Phase::kDecode && !results_[index].faulted &&
         row < static_cast<int64_t>(tokens.size()) &&
         tokens[row] == owner.output->pending;
}

void Scheduler::KeepDrafts(size_t index, int64_t tokens) {
  const Run& run = batch_.runs[index];
  LiveOutput& output = *batch_.owners[index].output;
  stats_.drafted_tokens += run.num_drafted;
  stats_.accepted_tokens += tokens - 1;
  if (output.phase == Phase::kOver) return;  // nobody goes on in the slot
  if (results_[index].faulted) {
    // Perhaps not the pending token's fault: it is run again, alone.
    model_.Keep(run.slot, 0);
    output.drafter.Pause();
    return;
  }
  model_.Keep(run.slot, tokens);
}

void Scheduler::Account(const Batch::Owner& owner, const Run& run,
                        const RunResult& result) {
  if (result.faulted && run.num_drafted > 0) return;  // see KeepDrafts()
  if (result.faulted) {
    owner.request->Fail(
        absl::InternalError("the model computed a number that is not finite"));
  } else if (owner.output->phase == Phase::kDecode) {
    AddSampleJob(*owner.request, *owner.output, result, 0);
  } else {
    AccountPrompt(owner, run, result);
  }
}

void Scheduler::AccountPrompt(const Batch::Owner& owner, const Run& run,
                              const RunResult& result) {
  LiveRequest& request = *owner.request;
  LiveOutput& output = *owner.output;
  const bool is_prompt = output.phase == Phase::kPrompt;
  if (is_prompt && request.wants_prompt()) {
    const int64_t num_run =
        output.num_run + static_cast<int64_t>(run.tokens.size());
    request.DescribePrompt(num_run + 1);  // the last logits are about the next
  }
  if (is_prompt && run.logits == LogitsWanted::kAll) {
    AddPromptJobs(owner, output.num_run, result);
  }
  stats_.prompt_tokens += static_cast<int64_t>(run.tokens.size());
  output.num_run += static_cast<int64_t>(run.tokens.size());
  if (request.num_ids_left(output) > 0) return;
  if (!is_prompt) {
    AddSampleJob(request, output, result, result.logits.rows - 1);
    return;
  }
  prompt_ends_.push_back({&request, output.slot});
  for (LiveOutput& each : request.outputs()) {
    if (request.samples_after_prompt(each)) {
      AddSampleJob(request, each, result, result.logits.rows - 1);
    }
  }
}

void Scheduler::AddPromptJobs(const Batch::Owner& owner, int64_t first_position,
                              const RunResult& result) {
  const int64_t length =
      static_cast<int64_t>(owner.request->request().prompt.size());
  for (int64_t row = 0; row < result.logits.rows; ++row) {
    const int64_t index = first_position + row + 1;  // the id that follows
    if (index == length) break;
    TokenJob& job = jobs_.emplace_back();
    job.request = owner.request;
    job.prompt_index = index;
    job.logits = {result.logits.Row(row),
                  static_cast<size_t>(result.logits.cols)};
  }
}

void Scheduler::AddSampleJob(LiveRequest& request, LiveOutput& output,
                             const RunResult& result, int64_t row) {
  FLASH_CHECK(row >= 0 && row < result.logits.rows);
  TokenJob& job = jobs_.emplace_back();
  job.request = &request;
  job.output = &output;
  job.logits = {result.logits.Row(row),
                static_cast<size_t>(result.logits.cols)};
}

void Scheduler::EndPrompt(LiveRequest& request) {
  if (request.over()) return;
  if (request.wants_prompt()) {
    request.sink().OnPrompt(request.TakePromptOutput());
  }
  for (LiveOutput& output : request.outputs()) {
    output.num_run = 0;
    if (output.finished.has_value()) {
      Conclude(request, output);
    } else if (output.num_tokens > 0) {
      output.phase = Phase::kPrior;
    }
  }
}

void Scheduler::DeliverToken(TokenJob& job) {
  LiveRequest& request = *job.request;
  LiveOutput& output = *job.output;
  if (!request.outcome().ok()) return;
  request.MarkToken(step_end_);
  ++stats_.generated_tokens;
  TokenOutput token;
  token.output_index = output.index;
  token.token_index = output.num_tokens;
  const int32_t id = job.token.id;
  token.token = std::move(job.token);
  OutputText::Released released = request.Take(output, id);
  token.text = std::move(released.text);
  token.text_offset = released.offset;
  request.sink().OnToken(std::move(token));
  if (output.finished.has_value()) {
    Conclude(request, output);
  } else {
    output.pending = id;
    output.phase = Phase::kDecode;
  }
}

void Scheduler::Fork(const PromptEnd& end) {
  if (!end.request->outcome().ok()) return;
  for (const LiveOutput& output : end.request->outputs()) {
    if (output.phase == Phase::kOver || output.slot == end.slot) continue;
    model_.CopySlot(end.slot, output.slot);
  }
}

void Scheduler::Conclude(LiveRequest& request, LiveOutput& output) {
  request.sink().OnFinished(*std::move(output.finished));
  output.phase = Phase::kOver;
  if (output.slot >= 0) free_slots_.push_back(std::exchange(output.slot, -1));
}

void Scheduler::TakeSlot(LiveOutput& output) {
  output.slot = free_slots_.back();
  free_slots_.pop_back();
}

bool Scheduler::Retire() {
  const auto over = [this](const std::unique_ptr<LiveRequest>& request) {
    if (!request->over()) return false;
    for (LiveOutput& output : request->outputs()) {
      if (output.slot >= 0) {
        free_slots_.push_back(std::exchange(output.slot, -1));
      }
    }
    Done(*request);
    return true;
  };
  return std::erase_if(live_, over) > 0;
}

void Scheduler::Done(const LiveRequest& request) {
  if (request.outcome().ok()) {
    ++stats_.finished_requests;
  } else {
    ++stats_.failed_requests;
  }
  request.sink().OnDone(request.outcome(), request.usage(),
                        request.timings(options_.now()));
}

void Scheduler::CountRequests() {
  stats_.running_requests = static_cast<int64_t>(live_.size());
  stats_.free_slots = static_cast<int>(free_slots_.size());
  stats_.blocked_requests =
      std::count_if(live_.begin(), live_.end(),
                    [](const auto& request) { return request->full(); });
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
