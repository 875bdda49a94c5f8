// What a token does to an output, and what an output says: the second half of
// LiveRequest.

#include <algorithm>
#include <utility>

#include "kernels/check.h"
#include "server/scheduler/live_request.h"

namespace flash {

Draw LiveRequest::NextDraw(const LiveOutput& output) const {
  return {.seed = request().sampling.seed,
          .output_index = DrawIndex(output),
          .position = static_cast<uint64_t>(num_before()) +
                      request().prompt.size() +
                      static_cast<uint64_t>(output.num_tokens)};
}

uint32_t LiveRequest::DrawIndex(const LiveOutput& output) const {
  const bool goes_on = request().start != nullptr && request().prompt.empty();
  return (goes_on ? request().start->output_index : 0) +
         static_cast<uint32_t>(output.index);
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
        std::min(tokens, *options_.max_length - num_before() -
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
    output.recent.Append(id, true);
    const bool pass_over = stops || output.num_tokens < stopping.min_tokens;
    released = output.text.Push(id, pass_over ? OutputText::Stops::kPassOver
                                              : OutputText::Stops::kMatch);
    if (output.rewind.has_value() && !released.stop.has_value()) {
      output.rewind->Push(id, output.text.size());
    }
  }
  if (stops && output.rewind.has_value()) output.rewind->End();
  if (stops) {
    Finish(output, IsEos(id) ? FinishReason::kEos : FinishReason::kStopToken);
    output.finished->stop_token_id = id;
  } else if (released.stop.has_value()) {
    output.hides_text = released.hides;
    if (output.rewind.has_value()) CutOff(output);
    Finish(output, FinishReason::kStopString);
    output.finished->stop_string = stopping.stop_strings[*released.stop];
  } else {
    FinishIfFull(output);
  }
  return released;
}

void LiveRequest::CutOff(LiveOutput& output) {
  Rewind::Cut cut = output.rewind->CutAt(output.text.size());
  if (!output.recent.Knows(cut.num_tokens)) return;
  output.recent.Truncate(cut.num_tokens);
  output.hides_text = false;
  output.cut_place = cut.place;
  if (cut.text.empty()) return;
  const auto ids = tokenizer_.Encode(cut.text, cut.place);
  if (!ids.ok()) return;  // the text is a token's, so this cannot be
  for (const int32_t id : *ids) output.recent.Append(id, true);
  output.cut_place = Tokenizer::Place::kLater;
}

void LiveRequest::FinishIfFull(LiveOutput& output) {
  const int64_t length = num_before() +
                         static_cast<int64_t>(request().prompt.size()) +
                         output.num_tokens;
  if (output.num_tokens >= request().stopping.max_tokens) {
    Finish(output, FinishReason::kMaxTokens);
  } else if (options_.max_length.has_value() &&
             length >= *options_.max_length) {
    Finish(output, FinishReason::kMaxLength);
  }
}

void LiveRequest::Finish(LiveOutput& output, FinishReason reason) {
  FLASH_CHECK(!output.finished.has_value());
  const bool goes_on = request().save && (reason == FinishReason::kMaxTokens ||
                                          reason == FinishReason::kMaxLength ||
                                          reason == FinishReason::kTimeLimit);
  OutputText::Released rest;
  rest.offset = output.text.size();
  if (!goes_on) rest = output.text.Finish();
  Finished& finished = output.finished.emplace();
  finished.output_index = output.index;
  finished.reason = reason;
  finished.text = std::move(rest.text);
  finished.text_offset = rest.offset;
  finished.num_tokens = output.num_tokens;
}

Snapshot LiveRequest::Text(const LiveOutput& output) const {
  Snapshot text;
  text.recent = output.recent.Last();
  OutputText::Point point = output.text.point();
  text.place = output.cut_place.value_or(point.place);
  text.incomplete = std::move(point.incomplete);
  text.held = std::move(point.held);
  text.seed = request().sampling.seed;
  text.output_index = DrawIndex(output);
  if (output.finished.has_value()) {
    const FinishReason reason = output.finished->reason;
    text.ended = reason == FinishReason::kEos ||
                 reason == FinishReason::kStopToken ||
                 reason == FinishReason::kStopString;
  }
  if (text.ended) text.incomplete.clear();
  return text;
}

}  // namespace flash
