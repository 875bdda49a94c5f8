// What becomes of a step's logits: the second half of Scheduler.

#include <cstdint>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "kernels/check.h"
#include "server/scheduler/scheduler.h"

namespace flash {

void Scheduler::Deliver() {
  jobs_.clear();
  prompt_ends_.clear();
  drafted_.clear();
  boundaries_.clear();
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
  VisitBoundaries();
}

void Scheduler::VisitBoundaries() {
  for (const auto& [owner, is_prompt] : boundaries_) {
    if (!owner.request->outcome().ok()) continue;
    boundary_states_.Visit(*owner.request, *owner.output, is_prompt);
  }
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
  return owner.request->outcome().ok() && !owner.output->finished.has_value() &&
         !results_[index].faulted &&
         row < static_cast<int64_t>(tokens.size()) &&
         tokens[row] == owner.output->pending;
}

void Scheduler::KeepDrafts(size_t index, int64_t tokens) {
  const Run& run = batch_.runs[index];
  LiveOutput& output = *batch_.owners[index].output;
  stats_.drafted_tokens += run.num_drafted;
  stats_.accepted_tokens += tokens - 1;
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
    return;
  }
  // A run with drafts ends before its chunk does.
  if (run.num_drafted == 0 &&
      model_.position(run.slot) % model_.chunk_size() == 0) {
    boundaries_.push_back({owner, owner.output->phase == Phase::kPrompt});
  }
  if (owner.output->phase == Phase::kDecode) {
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
    const int64_t num_run = request.PromptIdsIn(
        output.num_run + static_cast<int64_t>(run.tokens.size()));
    request.DescribePrompt(num_run + 1);  // the last logits are about the next
  }
  if (is_prompt && run.logits == LogitsWanted::kAll) {
    AddPromptJobs(owner, output.num_run, result);
  }
  stats_.prompt_tokens += static_cast<int64_t>(run.tokens.size());
  output.num_run += static_cast<int64_t>(run.tokens.size());
  if (request.num_ids_left(output) > 0) return;
  if (!is_prompt) {
    if (output.finished.has_value()) {
      output.phase = Phase::kDecode;  // all but over
    } else {
      AddSampleJob(request, output, result, result.logits.rows - 1);
    }
    return;
  }
  prompt_ends_.push_back({&request, output.slot});
  for (LiveOutput& each : request.outputs()) {
    if (request.samples_after_prompt(each)) {
      AddSampleJob(request, each, result, result.logits.rows - 1);
    }
  }
}

void Scheduler::AddPromptJobs(const Batch::Owner& owner, int64_t first_row,
                              const RunResult& result) {
  const int64_t length =
      static_cast<int64_t>(owner.request->request().prompt.size());
  for (int64_t row = 0; row < result.logits.rows; ++row) {
    // The prompt id that follows.
    const int64_t index = owner.request->PromptIdsIn(first_row + row + 1);
    if (index == 0) continue;
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
  request.EndPrompt();
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
  output.pending = id;
  output.phase = Phase::kDecode;
}

void Scheduler::Fork(const PromptEnd& end) {
  if (!end.request->outcome().ok()) return;
  for (const LiveOutput& output : end.request->outputs()) {
    if (output.slot != end.slot) model_.CopySlot(end.slot, output.slot);
  }
}

}  // namespace flash
