#include "server/service/wire_events.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/time/time.h"

namespace flash {
namespace {

// With 20 candidates each token is about 400 bytes, so that a part stays below
// the 4 MiB that gRPC clients take unless told otherwise.
constexpr size_t kTokensInPart = 4096;
constexpr size_t kTextInPart = 1 << 20;

// The first characters of valid UTF-8 `text`, at most `max_bytes` of them.
std::string_view WholeCharacters(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  size_t end = max_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) {
    --end;
  }
  return text.substr(0, end);
}

uint64_t Microseconds(Clock::duration duration) {
  const auto count =
      std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
  return static_cast<uint64_t>(std::max<int64_t>(count, 0));
}

v1::StopMatch StopOf(const Finished& finished) {
  v1::StopMatch stop;
  if (finished.reason == FinishReason::kStopString) {
    stop.set_text(finished.stop_string);
  } else {
    stop.set_token_id(static_cast<uint32_t>(finished.stop_token_id));
  }
  return stop;
}

bool HasStop(FinishReason reason) {
  return reason == FinishReason::kEos || reason == FinishReason::kStopToken ||
         reason == FinishReason::kStopString;
}

}  // namespace

v1::FinishReason ToWire(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEos:
      return v1::FINISH_REASON_EOS;
    case FinishReason::kStopToken:
      return v1::FINISH_REASON_STOP_TOKEN;
    case FinishReason::kStopString:
      return v1::FINISH_REASON_STOP_STRING;
    case FinishReason::kMaxTokens:
      return v1::FINISH_REASON_MAX_TOKENS;
    case FinishReason::kMaxLength:
      return v1::FINISH_REASON_MAX_LENGTH;
    case FinishReason::kTimeLimit:
      return v1::FINISH_REASON_TIME_LIMIT;
    case FinishReason::kCancelled:
      return v1::FINISH_REASON_CANCELLED;
  }
  return v1::FINISH_REASON_UNSPECIFIED;
}

v1::Accepted ToWire(const Accepted& accepted, const RequestFacts& facts) {
  v1::Accepted wire;
  wire.set_request_id(facts.request_id);
  wire.set_model(facts.model);
  wire.set_seed(accepted.seed);
  wire.set_prompt_tokens(accepted.prompt_tokens);
  wire.set_cached_prompt_tokens(accepted.cached_prompt_tokens);
  wire.set_max_tokens(facts.max_tokens);
  wire.set_min_tokens(facts.min_tokens);
  wire.set_num_outputs(facts.num_outputs);
  wire.set_session_epoch(facts.session_epoch);
  return wire;
}

v1::TokenInfo ToWire(TokenInfo token) {
  v1::TokenInfo wire;
  wire.set_id(static_cast<uint32_t>(token.id));
  wire.set_piece(std::move(token.piece));
  if (token.logprob.has_value()) {
    wire.set_logprob(*token.logprob);
    wire.set_rank(static_cast<uint32_t>(token.rank));
  }
  for (Candidate& candidate : token.candidates) {
    auto* entry = wire.add_candidates();
    entry->set_id(static_cast<uint32_t>(candidate.id));
    entry->set_logprob(candidate.logprob);
    entry->set_rank(static_cast<uint32_t>(candidate.rank));
    entry->set_piece(std::move(candidate.piece));
  }
  return wire;
}

v1::TokenOutput ToWire(TokenOutput token) {
  v1::TokenOutput wire;
  wire.set_output_index(static_cast<uint32_t>(token.output_index));
  wire.set_token_index(token.token_index);
  *wire.mutable_token() = ToWire(std::move(token.token));
  wire.set_text(std::move(token.text));
  wire.set_text_offset(token.text_offset);
  return wire;
}

v1::Finished ToWire(const Finished& finished,
                    const std::optional<SessionInfo>& session) {
  v1::Finished wire;
  wire.set_output_index(static_cast<uint32_t>(finished.output_index));
  wire.set_reason(ToWire(finished.reason));
  if (HasStop(finished.reason)) *wire.mutable_stop() = StopOf(finished);
  wire.set_text(finished.text);
  wire.set_text_offset(finished.text_offset);
  wire.set_num_tokens(finished.num_tokens);
  if (session.has_value()) *wire.mutable_session() = ToWire(*session);
  return wire;
}

v1::Session ToWire(const SessionInfo& session) {
  v1::Session wire;
  wire.set_id(session.id);
  wire.set_num_tokens(session.num_tokens);
  wire.set_num_bytes(session.bytes);
  wire.set_epoch(session.epoch);
  wire.set_in_use(session.in_use);
  wire.set_created_ms(absl::ToUnixMillis(session.created));
  wire.set_used_ms(absl::ToUnixMillis(session.used));
  wire.set_expires_ms(absl::ToUnixMillis(session.expires));
  wire.set_last_request_id(session.last_request);
  return wire;
}

v1::Usage ToWire(const Usage& usage) {
  v1::Usage wire;
  wire.set_prompt_tokens(usage.prompt_tokens);
  wire.set_cached_prompt_tokens(usage.cached_prompt_tokens);
  wire.set_completion_tokens(usage.completion_tokens);
  wire.set_prior_tokens(usage.prior_tokens);
  wire.set_total_tokens(usage.prompt_tokens + usage.completion_tokens);
  return wire;
}

v1::Timing ToWire(const Timings& timings) {
  v1::Timing wire;
  wire.set_queue_us(Microseconds(timings.queue));
  wire.set_prompt_us(Microseconds(timings.prompt));
  wire.set_decode_us(Microseconds(timings.decode));
  return wire;
}

std::vector<v1::PromptOutput> ToWireParts(PromptOutput prompt) {
  std::vector<v1::PromptOutput> parts;
  std::string_view text = prompt.text;
  size_t next = 0;
  do {
    v1::PromptOutput& part = parts.emplace_back();
    part.set_first_token_index(next);
    const size_t end = std::min(next + kTokensInPart, prompt.tokens.size());
    for (; next < end; ++next) {
      *part.add_tokens() = ToWire(std::move(prompt.tokens[next]));
    }
    const std::string_view piece = WholeCharacters(text, kTextInPart);
    part.set_text(std::string(piece));
    text.remove_prefix(piece.size());
  } while (next < prompt.tokens.size() || !text.empty());
  return parts;
}

}  // namespace flash
