#include "client/client_output.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "client/message_json.h"

namespace flash {
namespace {

using nlohmann::ordered_json;

ordered_json CandidateJson(const v1::Candidate& candidate) {
  return {{"id", candidate.id()},
          {"text", candidate.piece()},
          {"logprob", candidate.logprob()},
          {"rank", candidate.rank()}};
}

ordered_json TokenJson(const v1::TokenInfo& token, const std::string& text) {
  ordered_json json = {{"id", token.id()}, {"text", text}};
  if (token.has_logprob()) {
    json["logprob"] = token.logprob();
    json["rank"] = token.rank();
  }
  for (const auto& candidate : token.candidates()) {
    json["candidates"].push_back(CandidateJson(candidate));
  }
  return json;
}

ordered_json FinishedJson(const v1::GenerateEvent& event, uint64_t seed) {
  const v1::Finished& finished = event.finished();
  ordered_json json = {{"reason", ReasonName(finished.reason())},
                       {"output_index", finished.output_index()},
                       {"num_tokens", finished.num_tokens()},
                       {"text", finished.text()},
                       {"seed", seed}};
  if (finished.stop().has_token_id()) {
    json["stop"] = finished.stop().token_id();
  } else if (finished.stop().has_text()) {
    json["stop"] = finished.stop().text();
  }
  if (finished.has_session()) json["session"] = MessageJson(finished.session());
  if (event.has_usage()) json["usage"] = MessageJson(event.usage());
  if (event.has_timing()) json["timing"] = MessageJson(event.timing());
  return json;
}

double Sum(const google::protobuf::RepeatedField<float>& numbers) {
  double sum = 0;
  for (const float number : numbers) sum += number;
  return sum;
}

}  // namespace

std::string ReasonName(v1::FinishReason reason) {
  return std::string(
      absl::StripPrefix(v1::FinishReason_Name(reason), "FINISH_REASON_"));
}

std::string EventText(const v1::GenerateEvent& event) {
  if (event.has_prompt()) return event.prompt().text();
  if (event.has_token()) return event.token().text();
  if (event.has_finished()) return event.finished().text() + "\n";
  return "";
}

std::string EventJson(const v1::GenerateEvent& event, uint64_t seed) {
  ordered_json json;
  if (event.has_prompt()) {
    ordered_json& prompt = json["prompt"];
    prompt["text"] = event.prompt().text();
    for (const auto& token : event.prompt().tokens()) {
      prompt["tokens"].push_back(TokenJson(token, token.piece()));
    }
  } else if (event.has_token()) {
    json["token"] = TokenJson(event.token().token(), event.token().text());
    json["token"]["output_index"] = event.token().output_index();
  } else if (event.has_finished()) {
    json["finished"] = FinishedJson(event, seed);
  } else {
    return "";
  }
  return JsonLine(json) + "\n";
}

std::string ScoreText(const v1::ScoreResult& result) {
  const double sum = Sum(result.logprobs());
  const int count = result.logprobs_size();
  if (count == 0) return "0 tokens scored: none has one before it\n";
  return absl::StrFormat(
      "%d tokens scored, sum of logprobs %.6f, perplexity %.6f\n", count, sum,
      std::exp(-sum / count));
}

std::string ScoreJson(const v1::ScoreResult& result) {
  ordered_json json;
  json["logprobs"] = ordered_json::array();
  for (const float logprob : result.logprobs()) {
    json["logprobs"].push_back(logprob);
  }
  json["ids"] = ordered_json::array();
  for (const uint32_t id : result.token_ids()) json["ids"].push_back(id);
  json["usage"] = MessageJson(result.usage());
  return JsonLine(json) + "\n";
}

std::string InfoText(const v1::ServerInfo& server, const v1::ModelInfo& model) {
  std::string text = absl::StrFormat(
      "server   flash-server %s, up %.1f s%s\n"
      "device   %s (%s), %s, %d threads, weights %s, cache %s\n"
      "slots    %d of %d free, %d requests waiting\n"
      "model    %s, %d parameters, %d layers of %d x %d, chunk %d\n"
      "tokens   %d ids, %s\n",
      server.version(), server.uptime_ms() / 1000.0,
      server.shutting_down() ? ", shutting down" : "", server.device(),
      server.device_name(), server.instruction_set(), server.num_threads(),
      server.weights_type(), server.cache_type(), server.load().slots_free(),
      server.num_slots(), server.load().requests_queued(), model.name(),
      model.num_parameters(), model.num_layers(), model.hidden_size(),
      model.expanded_size(), model.chunk_size(), model.vocab_size(),
      model.has_text() ? model.tokenizer() + " tokenizer" : "no tokenizer");
  for (const v1::MemoryPart& part : server.memory()) {
    absl::StrAppendFormat(&text, "memory   %8.1f MiB  %s\n",
                          static_cast<double>(part.bytes()) / (1 << 20),
                          part.name());
  }
  return text;
}

std::string InfoJson(const v1::ServerInfo& server, const v1::ModelInfo& model) {
  ordered_json json;
  json["server"] = MessageJson(server);
  json["model"] = MessageJson(model);
  return JsonLine(json) + "\n";
}

}  // namespace flash
