#include "server/service/request_parser.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/service/errors.h"
#include "server/service/field_checks.h"
#include "server/service/random_ids.h"
#include "server/service/request_fields.h"
#include "server/tokenizer/detokenizer.h"

namespace flash {
namespace {

void CheckRequestId(const std::string& id, const ServiceLimits& limits,
                    FieldChecks& checks) {
  const bool printable = std::all_of(
      id.begin(), id.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
  if (id.empty() || !printable ||
      id.size() > static_cast<size_t>(limits.max_request_id_bytes)) {
    checks.Add("request_id", absl::StrCat("is \"", Excerpt(id, 32), "\" of ",
                                          id.size(), " bytes; it must be 1 to ",
                                          limits.max_request_id_bytes,
                                          " printable ASCII bytes"));
  }
}

// What Generate and Score have in common: a request with its id.
template <typename WireRequest>
std::unique_ptr<Request> Begin(const WireRequest& wire,
                               const ServiceLimits& limits,
                               FieldChecks& checks) {
  checks.NoUnknownFields(wire);
  auto request = std::make_unique<Request>();
  request->id = wire.has_request_id() ? wire.request_id() : RandomRequestId();
  CheckRequestId(request->id, limits, checks);
  const PromptInput input = InputOf(wire);
  if (input.empty() && input.place == Tokenizer::Place::kFirst) {
    checks.Add("input", "is not set; one of text and token_ids is required");
  }
  return request;
}

void CheckSession(const v1::GenerateRequest& wire, FieldChecks& checks) {
  if (!wire.has_session()) return;
  const v1::SessionRef& session = wire.session();
  if (session.id().empty()) {
    checks.Add("session.id", "is not set; it is required");
  }
  if (session.unchanged()) {
    if (session.has_takeover_epoch()) {
      checks.Add("session.takeover_epoch",
                 "is set; a session that is unchanged is not claimed");
    }
    return;
  }
  constexpr uint64_t kMostEpoch = std::numeric_limits<int64_t>::max();
  if (session.takeover_epoch() > kMostEpoch) {
    checks.Add("session.takeover_epoch",
               absl::StrCat("is ", session.takeover_epoch(),
                            "; it must be at most ", kMostEpoch));
  }
  if (session.has_takeover_epoch() && session.takeover_epoch() == 0 &&
      wire.request_id().empty()) {
    checks.Add("session.takeover_epoch",
               "is 0, and request_id, by which the call that was cut off is "
               "known, is not set");
  }
  if (wire.has_save_session() && !wire.save_session()) {
    checks.Add("save_session",
               "is false; a session that is to stay as it is, is unchanged");
  }
  if (wire.sampling().has_num_outputs() && wire.sampling().num_outputs() > 1) {
    checks.Add("sampling.num_outputs",
               absl::StrCat("is ", wire.sampling().num_outputs(),
                            "; the most is 1 for a session that is not "
                            "unchanged"));
  }
}

void CheckNumTokens(const char* field, int64_t count, int64_t most,
                    FieldChecks& checks) {
  if (count <= most) return;
  checks.Add(field,
             absl::StrCat("gives ", count, " tokens; the most is ", most));
}

// That the prior ids, after a text of `length`, make at most `most` tokens.
void CheckPriorFits(const Request& request, int64_t length, int64_t most,
                    FieldChecks& checks) {
  for (size_t i = 0; i < request.prior_output_ids.size(); ++i) {
    const size_t count = request.prior_output_ids[i].size();
    const int64_t total = length + static_cast<int64_t>(count);
    if (total <= most) continue;
    checks.Add(absl::StrCat("prior_output_ids[", i, "].ids"),
               absl::StrCat("has ", count, " entries, with the prompt ", total,
                            " tokens; the most is ", most));
  }
}

const char* FieldOf(const PromptInput& input) {
  return input.text != nullptr ? "text" : "token_ids.ids";
}

}  // namespace

PromptInput InputOf(const v1::GenerateRequest& wire) {
  PromptInput input;
  if (wire.has_text()) input.text = &wire.text();
  if (wire.has_token_ids()) input.token_ids = &wire.token_ids();
  if (wire.has_session()) input.place = Tokenizer::Place::kLater;
  return input;
}

PromptInput InputOf(const v1::ScoreRequest& wire) {
  PromptInput input;
  if (wire.has_text()) input.text = &wire.text();
  if (wire.has_token_ids()) input.token_ids = &wire.token_ids();
  return input;
}

SessionUse SessionUseOf(const v1::GenerateRequest& wire) {
  SessionUse use;
  use.save = wire.save_session();
  if (!wire.has_session()) return use;
  use.id = wire.session().id();
  use.unchanged = wire.session().unchanged();
  if (wire.session().has_takeover_epoch()) {
    use.takeover_epoch = static_cast<int64_t>(wire.session().takeover_epoch());
  }
  use.save = use.save || !use.unchanged;
  use.keeps_seed = InputOf(wire).empty() && !wire.sampling().has_seed();
  return use;
}

template <typename WireRequest>
absl::Status RequestParser::CheckModelOf(const WireRequest& wire) const {
  return wire.has_model() ? CheckModel(wire.model()) : absl::OkStatus();
}

absl::Status RequestParser::CheckModel(const std::string& wanted) const {
  return wanted == model_.name ? absl::OkStatus()
                               : ModelNotFound(wanted, model_.name);
}

absl::StatusOr<std::unique_ptr<Request>> RequestParser::Parse(
    const v1::GenerateRequest& wire) const {
  const absl::Status found = CheckModelOf(wire);
  if (!found.ok()) return found;
  FieldChecks checks;
  std::unique_ptr<Request> request = Begin(wire, limits_, checks);
  CheckSession(wire, checks);
  RequestFields(limits_, model_, checks).Read(wire, *request);
  if (!checks.ok()) return checks.status();
  request->save = SessionUseOf(wire).save;

  if (!model_.has_text) {
    if (wire.has_text()) return NeedsTokenizer("text");
    if (wire.stopping().stop_strings_size() > 0) {
      return NeedsTokenizer("stopping.stop_strings");
    }
  }
  return request;
}

absl::StatusOr<std::unique_ptr<Request>> RequestParser::Parse(
    const v1::ScoreRequest& wire) const {
  const absl::Status found = CheckModelOf(wire);
  if (!found.ok()) return found;
  FieldChecks checks;
  std::unique_ptr<Request> request = Begin(wire, limits_, checks);
  checks.Integer("candidates", wire.candidates(), 0, limits_.max_logprobs);
  if (!checks.ok()) return checks.status();
  if (wire.has_text() && !model_.has_text) return NeedsTokenizer("text");
  request->stopping.max_tokens = 0;
  request->response.prompt_logprobs = static_cast<int32_t>(wire.candidates());
  return request;
}

absl::StatusOr<std::vector<int32_t>> RequestParser::Encode(
    const std::string& text, Tokenizer::Place place) const {
  if (!model_.has_text) return NeedsTokenizer("text");
  if (static_cast<int64_t>(text.size()) > limits_.max_text_bytes) {
    return InvalidRequest(
        {{"text", absl::StrCat("has ", text.size(), " bytes; the most is ",
                               limits_.max_text_bytes,
                               ": send longer texts as token ids")}});
  }
  if (!IsValidUtf8(text)) {
    return InvalidRequest(
        {{"text", absl::StrCat("has ", text.size(),
                               " bytes that are not valid UTF-8")}});
  }
  auto ids = tokenizer_.Encode(text, place);
  if (!ids.ok() && absl::IsInvalidArgument(ids.status())) {
    return InvalidRequest(
        {{"text", absl::StrCat("cannot be tokenised: ",
                               std::string(ids.status().message()))}});
  }
  return ids;
}

absl::StatusOr<std::vector<int32_t>> RequestParser::PromptOf(
    PromptInput input, const Request& request) const {
  if (input.text != nullptr) {
    const bool begins = input.place == Tokenizer::Place::kFirst;
    auto ids = Encode(*input.text, input.place);
    if (ids.ok() && begins && model_.bos_token_id.has_value()) {
      ids->insert(ids->begin(), *model_.bos_token_id);
    }
    if (ids.ok() && ids->empty()) {
      return InvalidRequest(
          {{"text", begins ? "gives 0 tokens; the least is 1, and this model "
                             "has no BOS"
                           : "gives 0 tokens; leave it out to go on without a "
                             "prompt"}});
    }
    return ids;
  }
  FieldChecks checks;
  const auto& ids = input.token_ids->ids();
  if (ids.empty()) {
    checks.Add("token_ids.ids", "has 0 entries; the least is 1");
  }
  checks.Count("token_ids.ids", ids.size(), limits_.max_prompt_tokens);
  checks.Ids("token_ids.ids", ids,
             request.response.echo ? model_.num_pieces : model_.vocab_size);
  if (!checks.ok()) return checks.status();
  return ToIds(ids);
}

absl::Status RequestParser::ReadPrompt(PromptInput input,
                                       Request& request) const {
  if (input.empty()) return absl::OkStatus();  // of a session
  auto prompt = PromptOf(input, request);
  if (!prompt.ok()) return prompt.status();
  request.prompt = *std::move(prompt);

  FieldChecks checks;
  const int64_t length = static_cast<int64_t>(request.prompt.size());
  const int64_t most = std::min(limits_.max_prompt_tokens,
                                model_.max_length.value_or(INT64_MAX));
  CheckNumTokens(FieldOf(input), length, most, checks);
  const ResponseOptions& response = request.response;
  const int64_t candidates =
      length * (1 + std::max(response.prompt_logprobs, 0));
  if ((response.echo || response.prompt_logprobs >= 0) &&
      candidates > limits_.max_prompt_candidates) {
    checks.Add(FieldOf(input),
               absl::StrCat("gives ", length, " tokens, which is ", candidates,
                            " candidates with those asked for; the most is ",
                            limits_.max_prompt_candidates));
  }
  return checks.status();
}

absl::Status RequestParser::Settle(Request& request) const {
  const int64_t before =
      request.start == nullptr ? 0 : request.start->num_tokens();
  const int64_t length = before + static_cast<int64_t>(request.prompt.size());
  const int64_t most = model_.max_length.value_or(INT64_MAX);
  FieldChecks checks;
  if (length > most) {
    checks.Add("input", absl::StrCat("gives ", request.prompt.size(),
                                     " tokens, with the session's ", length,
                                     "; the most is ", most));
  }
  CheckPriorFits(request, length, most, checks);
  if (!checks.ok()) return checks.status();

  StoppingOptions& stopping = request.stopping;
  if (stopping.max_tokens == kUnsetMaxTokens) {
    stopping.max_tokens = std::min(limits_.default_max_tokens, most - length);
    stopping.min_tokens = std::min(stopping.min_tokens, stopping.max_tokens);
  }
  return absl::OkStatus();
}

absl::Status RequestParser::CheckUnarySize(const Request& request) const {
  // Each factor has a limit far below what would overflow.
  const int64_t candidates = (1 + std::max(request.response.logprobs, 0)) *
                             request.stopping.max_tokens * request.num_outputs;
  if (candidates <= limits_.max_unary_candidates) return absl::OkStatus();
  return InvalidRequest(
      {{"stopping.max_tokens",
        absl::StrCat("is ", request.stopping.max_tokens, ", which is ",
                     candidates, " candidates with the logprobs and outputs ",
                     "asked for; the most in a unary call is ",
                     limits_.max_unary_candidates,
                     ", a stream has no limit")}});
}

std::vector<std::string> RequestParser::PiecesOf(
    const std::vector<int32_t>& ids) const {
  Detokenizer detokenizer(tokenizer_, Tokenizer::Place::kFirst);
  std::vector<std::string> pieces;
  pieces.reserve(ids.size());
  for (const int32_t id : ids) {
    pieces.push_back(detokenizer.Piece(id));
    detokenizer.Push(id);
  }
  return pieces;
}

absl::StatusOr<std::vector<int32_t>> RequestParser::Tokenize(
    const v1::TokenizeRequest& wire) const {
  const absl::Status found = CheckModelOf(wire);
  if (!found.ok()) return found;
  FieldChecks checks;
  checks.NoUnknownFields(wire);
  if (!wire.has_text()) checks.Add("text", "is not set; it is required");
  if (!checks.ok()) return checks.status();
  auto ids = Encode(wire.text(), Tokenizer::Place::kFirst);
  const bool add_bos = !wire.has_add_bos() || wire.add_bos();
  if (ids.ok() && add_bos && model_.bos_token_id.has_value()) {
    ids->insert(ids->begin(), *model_.bos_token_id);
  }
  if (!ids.ok()) return ids;
  CheckNumTokens("text", static_cast<int64_t>(ids->size()),
                 limits_.max_prompt_tokens, checks);
  if (!checks.ok()) return checks.status();
  return ids;
}

absl::StatusOr<std::string> RequestParser::Detokenize(
    const v1::DetokenizeRequest& wire) const {
  const absl::Status found = CheckModelOf(wire);
  if (!found.ok()) return found;
  FieldChecks checks;
  checks.NoUnknownFields(wire);
  checks.Count("token_ids", wire.token_ids_size(), limits_.max_prompt_tokens);
  checks.Ids("token_ids", wire.token_ids(), model_.num_pieces);
  if (!checks.ok()) return checks.status();
  if (!model_.has_text) return NeedsTokenizer("token_ids");
  return Decode(tokenizer_, ToIds(wire.token_ids()));
}

}  // namespace flash
