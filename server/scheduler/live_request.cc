#include "server/scheduler/live_request.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/check.h"
#include "server/scheduler/interruption.h"

namespace flash {
namespace {

// A window that is no longer than what it can ever look back at.
int32_t HistoryWindow(const Request& request) {
  if (!HasPenalties(request.sampling)) return 0;
  const int64_t prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t window = request.sampling.penalty_window;
  if (request.stopping.max_tokens >= window - prompt) {
    return static_cast<int32_t>(window);
  }
  return static_cast<int32_t>(prompt + request.stopping.max_tokens);
}

int64_t DraftWindow(const Request& request, const EngineOptions& options) {
  if (options.max_drafted_tokens == 0) return 0;
  return static_cast<int64_t>(request.prompt.size()) +
         std::min(request.stopping.max_tokens, Drafter::kMaxWindow);
}

}  // namespace

LiveRequest::LiveRequest(QueuedRequest queued, const Tokenizer& tokenizer,
                         const EngineOptions& options)
    : queued_(std::move(queued)),
      options_(options),
      prompt_detokenizer_(tokenizer, Tokenizer::Place::kFirst) {
  const StoppingOptions& stopping = request().stopping;
  stop_ids_ = stopping.stop_token_ids;
  if (!stopping.ignore_eos) {
    stop_ids_.insert(stop_ids_.end(), options.eos_token_ids.begin(),
                     options.eos_token_ids.end());
  }
  std::sort(stop_ids_.begin(), stop_ids_.end());
  if (wants_prompt()) prompt_tokens_.reserve(request().prompt.size());
  MakeOutputs(tokenizer);
}

void LiveRequest::MakeOutputs(const Tokenizer& tokenizer) {
  const Request& request = this->request();
  const OutputText text(
      tokenizer, PlaceAfter(tokenizer, request.prompt),
      std::make_shared<StopStrings>(request.stopping.stop_strings),
      request.stopping.include_stop ? OutputText::StopText::kKept
                                    : OutputText::StopText::kDropped);
  TokenHistory history(HistoryWindow(request));
  history.AppendPrompt(request.prompt);
  Drafter drafter(DraftWindow(request, options_));
  drafter.Append(request.prompt);
  outputs_.reserve(request.num_outputs);
  for (int index = 0; index < request.num_outputs; ++index) {
    outputs_.push_back(
        {.index = index, .text = text, .history = history, .drafter = drafter});
    FinishIfFull(outputs_.back());
  }
  outputs_.front().phase = Phase::kPrompt;
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
  const std::vector<int32_t>& ids =
      output.phase == Phase::kPrompt ? request().prompt
                                     : request().prior_output_ids[output.index];
  return std::span<const int32_t>(ids).subspan(output.num_run);
}

int64_t LiveRequest::position(const LiveOutput& output) const {
  const int64_t prompt = static_cast<int64_t>(request().prompt.size());
  switch (output.phase) {
    case Phase::kPrompt:
      return output.num_run;
    case Phase::kPrior:
      return prompt + output.num_run;
    case Phase::kDecode:
      return prompt + output.num_tokens - 1;
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
  if (output.phase != Phase::kPrompt) return true;
  return std::any_of(
      outputs_.begin(), outputs_.end(),
      [this](const LiveOutput& each) { return samples_after_prompt(each); });
}

PromptOutput LiveRequest::TakePromptOutput() {
  DescribePrompt(static_cast<int64_t>(request().prompt.size()));
  if (request().response.echo) prompt_text_ += prompt_detokenizer_.Flush();
  return {std::move(prompt_tokens_), std::move(prompt_text_)};
}

Draw LiveRequest::NextDraw(const LiveOutput& output) const {
  return {.seed = request().sampling.seed,
          .output_index = static_cast<uint32_t>(output.index),
          .position = request().prompt.size() +
                      static_cast<uint64_t>(output.num_tokens)};
}

std::span<const int32_t> LiveRequest::Forbidden(
    const LiveOutput& output) const {
  if (output.num_tokens >= request().stopping.min_tokens) return {};
  return stop_ids_;
}

int LiveRequest::max_drafted(const LiveOutput& output) const {
  const int64_t num_outputs = static_cast<int64_t>(outputs_.size());
  const int64_t tokens = std::min(NumTokensLeft(output), room_ / num_outputs);
  return static_cast<int>(
      std::clamp<int64_t>(tokens - 1, 0, options_.max_drafted_tokens));
}

int64_t LiveRequest::NumTokensLeft(const LiveOutput& output) const {
  int64_t tokens = request().stopping.max_tokens;
  if (options_.max_length.has_value()) {
    tokens =
        std::min(tokens, *options_.max_length -
                             static_cast<int64_t>(request().prompt.size()));
  }
  return tokens - output.num_tokens;
}

bool LiveRequest::IsEos(int32_t id) const {
  const std::vector<int32_t>& eos = options_.eos_token_ids;
  return !request().stopping.ignore_eos &&
         std::find(eos.begin(), eos.end(), id) != eos.end();
}

OutputText::Released LiveRequest::Take(LiveOutput& output, int32_t id) {
  FLASH_CHECK(!output.finished.has_value());
  const StoppingOptions& stopping = request().stopping;
  const bool stops = Forbidden(output).empty() &&
                     std::binary_search(stop_ids_.begin(), stop_ids_.end(), id);
  ++output.num_tokens;
  output.history.AppendOutput(id);
  output.drafter.Append(id);

  OutputText::Released released;
  released.offset = output.text.size();
  if (!stops || stopping.include_stop) {
    const bool pass_over = stops || output.num_tokens < stopping.min_tokens;
    released = output.text.Push(id, pass_over ? OutputText::Stops::kPassOver
                                              : OutputText::Stops::kMatch);
  }
  if (stops) {
    Finish(output, IsEos(id) ? FinishReason::kEos : FinishReason::kStopToken);
    output.finished->stop_token_id = id;
  } else if (released.stop.has_value()) {
    Finish(output, FinishReason::kStopString);
    output.finished->stop_string = stopping.stop_strings[*released.stop];
  } else {
    FinishIfFull(output);
  }
  return released;
}

void LiveRequest::FinishIfFull(LiveOutput& output) {
  const int64_t length =
      static_cast<int64_t>(request().prompt.size()) + output.num_tokens;
  if (output.num_tokens >= request().stopping.max_tokens) {
    Finish(output, FinishReason::kMaxTokens);
  } else if (options_.max_length.has_value() &&
             length >= *options_.max_length) {
    Finish(output, FinishReason::kMaxLength);
  }
}

void LiveRequest::Finish(LiveOutput& output, FinishReason reason) {
  FLASH_CHECK(!output.finished.has_value());
  OutputText::Released rest = output.text.Finish();
  Finished& finished = output.finished.emplace();
  finished.output_index = output.index;
  finished.reason = reason;
  finished.text = std::move(rest.text);
  finished.text_offset = rest.offset;
  finished.num_tokens = output.num_tokens;
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
  for (const LiveOutput& output : outputs_) {
    usage.completion_tokens += output.num_tokens;
    usage.prior_tokens += output.num_prior;
    usage.longest_tokens =
        std::max(usage.longest_tokens, usage.prompt_tokens + output.num_tokens);
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
