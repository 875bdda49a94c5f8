#include "server/scheduler/batch.h"

#include <algorithm>

namespace flash {
namespace {

// Of a step, what waiting prompts have a right to while outputs decode.
constexpr int kPromptShare = 4;  // a quarter

// The most outputs that decode with drafts. More share what a step reads of the
// weights among them anyway: a row then costs what it costs.
constexpr size_t kMaxDraftingOutputs = 4;

// What a step costs beside its rows, in rows, where that is least (flash-bench,
// "rows a step": the demo model; larger ones have more to read).
constexpr float kStepRows = 3;

// How likely a draft has to be right. It costs a row, and saves its output's
// part of a step of `num_decoders` rows.
float LeastChance(size_t num_decoders) {
  const float rows = static_cast<float>(num_decoders);
  return rows / (rows + kStepRows);
}

// The row budget is a mean of what was measured: an eighth more is as good,
// where it saves a step.
constexpr int kStretch = 8;

// Whose logits the first `num_rows` of the ids that are left are run for.
LogitsWanted Wanted(const Batch::Owner& owner, int64_t num_rows) {
  const LiveRequest& request = *owner.request;
  const int64_t num_left = request.num_ids_left(*owner.output);
  const bool last = num_rows == num_left;
  // The logits after a prompt id are about the id that follows it.
  if (owner.output->phase == Phase::kPrompt &&
      request.wants_prompt_logprobs() && num_left > 1) {
    return LogitsWanted::kAll;
  }
  return last && request.samples_at_end(*owner.output) ? LogitsWanted::kLast
                                                       : LogitsWanted::kNone;
}

int64_t DivideUp(int64_t number, int64_t by) { return (number + by - 1) / by; }

int NumLogits(const Run& run) {
  switch (run.logits) {
    case LogitsWanted::kNone:
      return 0;
    case LogitsWanted::kLast:
      return 1;
    case LogitsWanted::kAll:
      return static_cast<int>(run.tokens.size());
  }
  return 0;
}

}  // namespace

void Batch::Clear() {
  runs.clear();
  owners.clear();
  num_rows = 0;
  num_prompt_rows = 0;
  num_decoders = 0;
  num_logits = 0;
}

void Batch::Add(const Run& run, const Owner& owner) {
  runs.push_back(run);
  owners.push_back(owner);
  const int rows = static_cast<int>(run.tokens.size());
  num_rows += rows;
  if (owner.output->phase == Phase::kDecode) {
    ++num_decoders;
  } else {
    num_prompt_rows += rows;
  }
  num_logits += NumLogits(run);
}

void BatchBuilder::Build(
    const std::vector<std::unique_ptr<LiveRequest>>& requests,
    const RowBudget& row_budget, Batch& batch) {
  batch.Clear();
  FindCandidates(requests);
  const int max_prompt_rows =
      Stretched(row_budget.PromptRows(static_cast<int>(decoders_.size())));
  const Budget kept = KeptForPrompts(max_prompt_rows);
  const int max_decoders =
      std::min(limits_.max_rows - kept.rows, limits_.max_logits - kept.logits);
  OrderDecoders(max_decoders);
  OrderPrompts();
  AddDecoders(max_decoders, batch);
  AddPrompts(max_prompt_rows, batch);
  const Budget left = Left(batch);  // what the prompts had no use for
  AddDecoders(std::min(left.rows, left.logits), batch);
}

void BatchBuilder::FindCandidates(
    const std::vector<std::unique_ptr<LiveRequest>>& requests) {
  decoders_.clear();
  prompts_.clear();
  next_decoder_ = 0;
  for (const std::unique_ptr<LiveRequest>& request : requests) {
    if (!request->prior_taken() || request->num_copies_due() > 0) continue;
    for (LiveOutput& output : request->outputs()) {
      if (output.phase == Phase::kPrompt || output.phase == Phase::kPrior) {
        prompts_.push_back({request.get(), &output});
      } else if (output.phase == Phase::kDecode && !request->full() &&
                 !output.finished.has_value()) {
        decoders_.push_back({request.get(), &output});
      }
    }
  }
}

int BatchBuilder::Stretched(int max_prompt_rows) const {
  if (prompts_.empty() || max_prompt_rows == 0) return max_prompt_rows;
  const int64_t most =
      std::min(max_prompt_rows, limits_.max_rows) * (kStretch + 1) / kStretch;
  const int64_t wanted = ToBoundary(prompts_.front());
  const int64_t rows = DivideUp(wanted, DivideUp(wanted, most));
  return std::max(max_prompt_rows, static_cast<int>(rows));
}

int64_t BatchBuilder::ToBoundary(const Batch::Owner& owner) const {
  const int64_t to_boundary =
      limits_.chunk_size -
      owner.request->position(*owner.output) % limits_.chunk_size;
  return std::min(owner.request->num_ids_left(*owner.output), to_boundary);
}

void BatchBuilder::OrderDecoders(int max_rows) {
  // If there is room for all, their order stays that of the requests.
  if (static_cast<int>(decoders_.size()) <= max_rows) return;
  std::sort(decoders_.begin(), decoders_.end(),
            [](const Batch::Owner& a, const Batch::Owner& b) {
              return a.output->last_row < b.output->last_row;
            });
}

BatchBuilder::Budget BatchBuilder::KeptForPrompts(int max_prompt_rows) const {
  return UseOfPrompts(
      0,
      {std::min(max_prompt_rows, std::max(1, limits_.max_rows / kPromptShare)),
       std::max(1, limits_.max_logits / kPromptShare)});
}

BatchBuilder::Budget BatchBuilder::UseOfPrompts(size_t first,
                                                const Budget& budget) const {
  Budget used;
  for (size_t i = first; i < prompts_.size() && used.rows < budget.rows; ++i) {
    const Run run = PromptRun(prompts_[i], Less(budget, used));
    used.rows += static_cast<int>(run.tokens.size());
    used.logits += NumLogits(run);
  }
  return used;
}

BatchBuilder::Budget BatchBuilder::Less(const Budget& budget,
                                        const Budget& used) {
  return {budget.rows - used.rows, budget.logits - used.logits};
}

BatchBuilder::Budget BatchBuilder::Left(const Batch& batch) const {
  return {limits_.max_rows - batch.num_rows,
          limits_.max_logits - batch.num_logits};
}

void BatchBuilder::AddDecoders(int max_rows, Batch& batch) {
  int rows_each = 1;
  if (!decoders_.empty() && decoders_.size() <= kMaxDraftingOutputs) {
    rows_each = max_rows / static_cast<int>(decoders_.size());
  }
  for (; max_rows > 0 && next_decoder_ < decoders_.size(); --max_rows) {
    const Batch::Owner& owner = decoders_[next_decoder_++];
    owner.output->last_row = ++last_row_;
    batch.Add(DecoderRun(owner, rows_each), owner);
  }
}

Run BatchBuilder::DecoderRun(const Batch::Owner& owner, int max_rows) const {
  LiveOutput& output = *owner.output;
  Run run = {output.slot, {&output.pending, 1}, LogitsWanted::kLast};
  const int offset =
      static_cast<int>(owner.request->position(output) % limits_.chunk_size);
  const int max_drafted =
      std::min({owner.request->max_drafted(output), max_rows - 1,
                limits_.chunk_size - 2 - offset});
  if (max_drafted <= 0) return run;
  const std::span<const int32_t> tokens =
      output.drafter.Propose(max_drafted, LeastChance(decoders_.size()));
  if (tokens.size() == 1) return run;
  run.tokens = tokens;
  run.logits = LogitsWanted::kAll;
  run.num_drafted = static_cast<int>(tokens.size()) - 1;
  return run;
}

void BatchBuilder::OrderPrompts() {
  if (prompts_.empty()) return;
  std::stable_sort(prompts_.begin() + 1, prompts_.end(),
                   [](const Batch::Owner& a, const Batch::Owner& b) {
                     return a.output->last_row < b.output->last_row;
                   });
}

void BatchBuilder::AddPrompts(int max_rows, Batch& batch) {
  Budget left = Left(batch);
  left.rows = std::min(left.rows, max_rows);
  for (size_t i = 0; i < prompts_.size() && left.rows > 0; ++i) {
    const Run run =
        PromptRun(prompts_[i], i == 0 ? Less(left, UseOfOthers(left)) : left);
    if (run.tokens.empty()) continue;
    if (i > 0) prompts_[i].output->last_row = ++last_row_;
    batch.Add(run, prompts_[i]);
    left = Less(left, {static_cast<int>(run.tokens.size()), NumLogits(run)});
  }
}

BatchBuilder::Budget BatchBuilder::UseOfOthers(const Budget& budget) const {
  const Batch::Owner& oldest = prompts_.front();
  const Run run = PromptRun(oldest, budget);
  const bool ends = static_cast<int64_t>(run.tokens.size()) ==
                    oldest.request->num_ids_left(*oldest.output);
  if (ends) return {};
  return UseOfPrompts(1, {budget.rows / 2, budget.logits / 2});
}

Run BatchBuilder::PromptRun(const Batch::Owner& owner,
                            const Budget& budget) const {
  const LiveRequest& request = *owner.request;
  const LiveOutput& output = *owner.output;
  if (budget.rows <= 0) return {output.slot, {}, LogitsWanted::kNone};
  const int64_t num_left = request.num_ids_left(output);
  const int64_t wanted = ToBoundary(owner);
  const int64_t num_steps = DivideUp(wanted, budget.rows);
  int64_t num_rows = DivideUp(wanted, num_steps);
  LogitsWanted logits = Wanted(owner, num_rows);
  if (logits == LogitsWanted::kAll) {
    num_rows = std::min(num_rows, static_cast<int64_t>(budget.logits));
  }
  // The last id's logits make a token: it waits until there is room for them,
  // and until the reader has room for the token.
  if (num_rows == num_left && request.samples_at_end(output) &&
      (request.full() || budget.logits <= 0)) {
    --num_rows;
    logits = Wanted(owner, num_rows);
  }
  if (num_rows <= 0) return {output.slot, {}, LogitsWanted::kNone};
  return {output.slot, request.ids_left(output).first(num_rows), logits};
}

}  // namespace flash
