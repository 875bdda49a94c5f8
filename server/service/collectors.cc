#include "server/service/collectors.h"

#include <utility>

namespace flash {

void GenerateCollector::OnAccepted(const Accepted& accepted,
                                   const RequestFacts& facts) {
  *result_.mutable_accepted() = ToWire(accepted, facts);
  for (int32_t i = 0; i < facts.num_outputs; ++i) {
    result_.add_outputs()->set_output_index(i);
  }
}

void GenerateCollector::OnPrompt(PromptOutput prompt) {
  v1::PromptOutput& whole = *result_.mutable_prompt();
  whole.set_text(std::move(prompt.text));
  for (TokenInfo& token : prompt.tokens) {
    *whole.add_tokens() = ToWire(std::move(token));
  }
}

v1::Output& GenerateCollector::AppendText(int32_t output_index,
                                          const std::string& text,
                                          int64_t offset) {
  v1::Output& output = *result_.mutable_outputs(output_index);
  if (output.text().empty()) output.set_text_offset(offset);
  output.mutable_text()->append(text);
  return output;
}

void GenerateCollector::OnToken(TokenOutput token) {
  v1::Output& output =
      AppendText(token.output_index, token.text, token.text_offset);
  *output.add_tokens() = ToWire(std::move(token.token));
}

void GenerateCollector::OnFinished(Finished finished,
                                   const std::optional<SessionInfo>& session) {
  v1::Finished wire = ToWire(finished, session);
  v1::Output& output =
      AppendText(finished.output_index, finished.text, finished.text_offset);
  output.set_reason(wire.reason());
  if (wire.has_stop()) *output.mutable_stop() = std::move(*wire.mutable_stop());
  output.set_num_tokens(wire.num_tokens());
  if (wire.has_session())
    output.mutable_session()->Swap(wire.mutable_session());
}

void GenerateCollector::OnUsage(const Usage& usage, const Timings& timings) {
  *result_.mutable_usage() = ToWire(usage);
  *result_.mutable_timing() = ToWire(timings);
}

void ScoreCollector::OnAccepted(const Accepted&, const RequestFacts& facts) {
  result_.set_request_id(facts.request_id);
}

void ScoreCollector::OnPrompt(PromptOutput prompt) {
  bool first = true;
  for (TokenInfo& token : prompt.tokens) {
    result_.add_token_ids(static_cast<uint32_t>(token.id));
    if (!std::exchange(first, false)) {
      result_.add_logprobs(token.logprob.value_or(0));
      result_.add_ranks(static_cast<uint32_t>(token.rank));
      if (!token.candidates.empty()) {
        v1::TokenInfo wire = ToWire(std::move(token));
        result_.add_candidates()->mutable_candidates()->Swap(
            wire.mutable_candidates());
      }
    }
  }
}

void ScoreCollector::OnUsage(const Usage& usage, const Timings& timings) {
  *result_.mutable_usage() = ToWire(usage);
  *result_.mutable_timing() = ToWire(timings);
}

}  // namespace flash
