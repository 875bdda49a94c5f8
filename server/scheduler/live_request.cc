#include "server/scheduler/live_request.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/check.h"
#include "server/scheduler/interruption.h"

namespace flash {
namespace {

Tokenizer::Place PlaceOfPrompt(const Request& request) {
  return request.start == nullptr ? Tokenizer::Place::kFirst
                                  : request.start->place;
}

}  // namespace

LiveRequest::LiveRequest(QueuedRequest queued, const Tokenizer& tokenizer,
                         const EngineOptions& options)
    : queued_(std::move(queued)),
      tokenizer_(tokenizer),
      options_(options),
      outputs_(MakeOutputs(request(), tokenizer, options)),
      first_place_(PlaceOfPrompt(request())),
      prompt_detokenizer_(tokenizer, first_place_) {
  const StoppingOptions& stopping = request().stopping;
  stop_ids_ = stopping.stop_token_ids;
  if (!stopping.ignore_eos) {
    stop_ids_.insert(stop_ids_.end(), options.eos_token_ids.begin(),
                     options.eos_token_ids.end());
  }
  std::sort(stop_ids_.begin(), stop_ids_.end());
  if (wants_prompt()) prompt_tokens_.reserve(request().prompt.size());
  Begin();
  for (LiveOutput& output : outputs_) FinishIfFull(output);
}

void LiveRequest::Begin() {
  const Snapshot* start = request().start.get();
  const std::vector<int32_t>& prompt = request().prompt;
  if (start == nullptr) {
    given_ = prompt;
    return;
  }
  beginning_ = {start->position, start->state};
  num_lead_ = static_cast<int64_t>(start->pending.size());
  if (num_lead_ == 0) {
    given_ = prompt;
  } else if (prompt.empty()) {
    given_ = start->pending;
  } else {
    joined_ = start->pending;
    joined_.insert(joined_.end(), prompt.begin(), prompt.end());
    given_ = joined_;
  }
}

void LiveRequest::BeginAt(SavedState beginning) {
  FLASH_CHECK(!begun_ && request().start == nullptr);
  beginning_ = std::move(beginning);
  outputs_.front().num_run =
      std::min(beginning_.position, static_cast<int64_t>(given_.size()));
}

void LiveRequest::BeginAnew() {
  beginning_ = {};
  outputs_.front().num_run = 0;
}

int64_t LiveRequest::num_ids_to_begin_with() const {
  const auto& prior = request().prior_output_ids;
  return static_cast<int64_t>(given_.size() +
                              (prior.size() == 1 ? prior[0].size() : 0));
}

int64_t LiveRequest::cached_prompt_tokens() const {
  if (request().start != nullptr) return 0;
  return std::min(beginning_.position, static_cast<int64_t>(given_.size()));
}

std::shared_ptr<const std::string> LiveRequest::MarkBegun() {
  begun_ = true;
  prompt_slot_ = outputs_.front().slot;
  for (LiveOutput& output : outputs_) {
    if (output.rewind.has_value()) output.rewind->SetBase(beginning_);
  }
  return std::exchange(beginning_.state, nullptr);
}

void LiveRequest::DescribePrompt(int64_t end) {
  const std::vector<int32_t>& prompt = request().prompt;
  end = std::min(end, static_cast<int64_t>(prompt.size()));
  while (static_cast<int64_t>(prompt_tokens_.size()) < end) {
    const int32_t id = prompt[prompt_tokens_.size()];
    TokenInfo& token = prompt_tokens_.emplace_back();
    token.id = id;
    token.piece = prompt_detokenizer_.Piece(id);
    const std::string text = prompt_detokenizer_.Push(id);
    if (request().response.echo) prompt_text_ += text;
    if (prompt_detokenizer_.place() == Tokenizer::Place::kFirst) {
      ++num_textless_;
    }
  }
}

int64_t LiveRequest::TakePrior(int64_t max_ids) {
  int64_t num_taken = 0;
  for (LiveOutput& output : outputs_) {
    for (; num_taken < max_ids && HasPriorLeft(output); ++num_taken) {
      Take(output, request().prior_output_ids[output.index][output.num_prior]);
      ++output.num_prior;
    }
  }
  // What was found is of no use if the output ends, or its text may be cut,
  // before that.
  const LiveOutput& first = outputs_.front();
  const int64_t end = static_cast<int64_t>(
      given_.size() + (first.finished.has_value() ? PriorToRun(first).size()
                                                  : first.num_prior));
  if (prior_taken() && request().start == nullptr &&
      (beginning_.position > end ||
       (first.rewind.has_value() &&
        beginning_.position > first.rewind->floor()))) {
    BeginAnew();
  }
  return num_taken;
}

bool LiveRequest::prior_taken() const {
  return std::none_of(
      outputs_.begin(), outputs_.end(),
      [this](const LiveOutput& output) { return HasPriorLeft(output); });
}

bool LiveRequest::HasPriorLeft(const LiveOutput& output) const {
  const auto& prior = request().prior_output_ids;
  return !prior.empty() && !output.finished.has_value() &&
         output.num_prior < static_cast<int64_t>(prior[output.index].size());
}

std::span<const int32_t> LiveRequest::ids_left(const LiveOutput& output) const {
  if (output.phase == Phase::kPrior) {
    return PriorToRun(output).subspan(output.num_run);
  }
  // If there is nothing to generate, the last id is left pending in what is
  // saved: another request can then go on without a prompt.
  const bool leaves_last =
      request().save && output.finished.has_value() && output.num_tokens == 0;
  return given_.first(given_.size() - (leaves_last ? 1 : 0))
      .subspan(output.num_run);
}

std::span<const int32_t> LiveRequest::PriorToRun(
    const LiveOutput& output) const {
  const auto& prior = request().prior_output_ids;
  if (prior.empty()) return {};
  const std::span<const int32_t> ids = prior[output.index];
  if (!output.finished.has_value()) return ids;
  // The last one that counts is pending, or no part of the text.
  const bool is_run = request().save && output.num_prior > 0;
  return ids.first(is_run ? output.num_prior - 1 : 0);
}

int64_t LiveRequest::position(const LiveOutput& output) const {
  const int64_t begin = request().start ? request().start->position : 0;
  const int64_t end = begin + static_cast<int64_t>(given_.size());
  switch (output.phase) {
    case Phase::kPrompt:
      return begin + output.num_run;
    case Phase::kPrior:
      return end + output.num_run;
    case Phase::kDecode:
      return end + output.num_tokens - 1;
    case Phase::kWaiting:
    case Phase::kOver:
      break;
  }
  return 0;
}

bool LiveRequest::samples_after_prompt(const LiveOutput& output) const {
  return output.num_tokens == 0 && !output.finished.has_value();
}

bool LiveRequest::samples_at_end(const LiveOutput& output) const {
  if (output.phase != Phase::kPrompt) return !output.finished.has_value();
  return std::any_of(
      outputs_.begin(), outputs_.end(),
      [this](const LiveOutput& each) { return samples_after_prompt(each); });
}

void LiveRequest::EndPrompt() {
  // What it began with may have been past the prompt.
  const int64_t end = (request().start ? request().start->position : 0) +
                      static_cast<int64_t>(given_.size());
  for (LiveOutput& output : outputs_) {
    output.num_run = std::max<int64_t>(0, beginning_.position - end);
    const int64_t num_prior = static_cast<int64_t>(PriorToRun(output).size());
    output.phase = output.num_run < num_prior ? Phase::kPrior : Phase::kDecode;
  }
}

PromptOutput LiveRequest::TakePromptOutput() {
  DescribePrompt(static_cast<int64_t>(request().prompt.size()));
  if (request().response.echo) prompt_text_ += prompt_detokenizer_.Flush();
  return {std::move(prompt_tokens_), std::move(prompt_text_)};
}

void LiveRequest::Fail(absl::Status status) {
  if (outcome_.ok()) outcome_ = std::move(status);
}

bool LiveRequest::over() const {
  return !outcome_.ok() || std::all_of(outputs_.begin(), outputs_.end(),
                                       [](const LiveOutput& output) {
                                         return output.phase == Phase::kOver;
                                       });
}

std::vector<std::shared_ptr<const void>> LiveRequest::TakeStates() {
  std::vector<std::shared_ptr<const void>> states = {
      std::move(queued_.request->start), std::move(beginning_.state)};
  for (LiveOutput& output : outputs_) {
    if (!output.rewind.has_value()) continue;
    states.push_back(output.rewind->TakeBase().state);
  }
  return states;
}

void LiveRequest::AskWhetherFull(Clock::time_point now) {
  room_ = sink().Room();
  if (room_ > 0) {
    full_since_.reset();
    return;
  }
  if (!full_since_.has_value()) full_since_ = now;
  if (Later(*full_since_, options_.slow_reader_timeout) > now) return;
  const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(
      options_.slow_reader_timeout);
  Fail(absl::ResourceExhaustedError(absl::StrCat(
      "the client did not read its answer for ", limit.count(), " ms")));
}

Clock::time_point LiveRequest::NextWakeup() const {
  const Clock::time_point interruption = NextInterruption(queued_);
  if (!full_since_.has_value()) return interruption;
  return std::min(interruption,
                  Later(*full_since_, options_.slow_reader_timeout));
}

void LiveRequest::MarkStep(Clock::time_point now) {
  if (!first_step_.has_value()) first_step_ = now;
}

void LiveRequest::MarkToken(Clock::time_point now) {
  if (!first_token_.has_value()) first_token_ = now;
}

Usage LiveRequest::usage() const {
  Usage usage;
  usage.prompt_tokens = static_cast<int64_t>(request().prompt.size());
  usage.cached_prompt_tokens = cached_prompt_tokens();
  for (const LiveOutput& output : outputs_) {
    usage.completion_tokens += output.num_tokens;
    usage.prior_tokens += output.num_prior;
    usage.longest_tokens =
        std::max(usage.longest_tokens,
                 num_before() + usage.prompt_tokens + output.num_tokens);
  }
  return usage;
}

Timings LiveRequest::timings(Clock::time_point now) const {
  const Clock::time_point first_step = first_step_.value_or(now);
  const Clock::time_point first_token = first_token_.value_or(now);
  return {.queue = first_step - queued_.submitted,
          .prompt = first_token - first_step,
          .decode = now - first_token};
}

}  // namespace flash
