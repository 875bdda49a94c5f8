#include "server/scheduler/live_output.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "server/model/sampling.h"
#include "server/tokenizer/detokenizer.h"

namespace flash {
namespace {

std::span<const RecentToken> TokensBefore(const Request& request) {
  if (request.start == nullptr) return {};
  return request.start->recent;
}

// `most`, or all tokens that there can ever be if they are fewer.
int64_t Window(const Request& request, int64_t most) {
  const int64_t given = static_cast<int64_t>(TokensBefore(request).size() +
                                             request.prompt.size());
  const int64_t max_tokens = request.stopping.max_tokens;
  return max_tokens >= most - given ? most : given + max_tokens;
}

TokenHistory MakeHistory(const Request& request) {
  const bool looks_back = HasPenalties(request.sampling);
  TokenHistory history(looks_back
                           ? static_cast<int32_t>(Window(
                                 request, request.sampling.penalty_window))
                           : 0);
  const std::span<const RecentToken> before = TokensBefore(request);
  const size_t window = history.window();
  for (const RecentToken& token :
       before.last(std::min(before.size(), window))) {
    if (token.is_output) {
      history.AppendOutput(token.id);
    } else {
      history.AppendPrompt(std::span(&token.id, 1));
    }
  }
  history.AppendPrompt(request.prompt);
  return history;
}

Drafter MakeDrafter(const Request& request, const EngineOptions& options) {
  if (options.max_drafted_tokens == 0) return Drafter(0);
  Drafter drafter(Window(request, Drafter::kMaxWindow));
  const std::span<const RecentToken> before = TokensBefore(request);
  for (const RecentToken& token : before.last(
           std::min(before.size(), static_cast<size_t>(Drafter::kMaxWindow)))) {
    drafter.Append(token.id);
  }
  drafter.Append(request.prompt);
  return drafter;
}

// Where the outputs' text begins.
OutputText::Point PointAfterPrompt(const Request& request,
                                   const Tokenizer& tokenizer) {
  const Snapshot* start = request.start.get();
  if (start == nullptr) return {PlaceAfter(tokenizer, request.prompt)};
  // Without a prompt the output that was saved goes on.
  if (request.prompt.empty()) {
    return {start->place, start->incomplete, start->held};
  }
  const bool is_later = start->place == Tokenizer::Place::kLater;
  return {is_later ? start->place : PlaceAfter(tokenizer, request.prompt)};
}

std::optional<Rewind> MakeRewind(const Request& request,
                                 const Tokenizer& tokenizer,
                                 const OutputText& text, int64_t num_tokens) {
  if (!request.save || request.stopping.stop_strings.empty()) return {};
  SavedState base;
  std::span<const int32_t> pending;
  if (request.start != nullptr) {
    base = {request.start->position, request.start->state};
    pending = request.start->pending;
  }
  return Rewind(tokenizer, text.point(), num_tokens, pending, std::move(base));
}

}  // namespace

std::vector<LiveOutput> MakeOutputs(const Request& request,
                                    const Tokenizer& tokenizer,
                                    const EngineOptions& options) {
  const OutputText text(
      tokenizer, PointAfterPrompt(request, tokenizer),
      std::make_shared<StopStrings>(request.stopping.stop_strings),
      request.stopping.include_stop ? OutputText::StopText::kKept
                                    : OutputText::StopText::kDropped);
  const TokenHistory history = MakeHistory(request);
  const Drafter drafter = MakeDrafter(request, options);
  RecentTokens recent(request.start.get());
  recent.AppendPrompt(request.prompt);
  const std::optional<Rewind> rewind =
      MakeRewind(request, tokenizer, text, recent.num_tokens());
  std::vector<LiveOutput> outputs;
  outputs.reserve(request.num_outputs);
  for (int index = 0; index < request.num_outputs; ++index) {
    outputs.push_back({.index = index,
                       .text = text,
                       .history = history,
                       .drafter = drafter,
                       .recent = recent,
                       .rewind = rewind});
  }
  outputs.front().phase = Phase::kPrompt;
  return outputs;
}

}  // namespace flash
