#include "server/service/request_fields.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/service/random_ids.h"

namespace flash {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool Contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

std::vector<int32_t> ToIds(
    const google::protobuf::RepeatedField<uint32_t>& ids) {
  return {ids.begin(), ids.end()};
}

void RequestFields::Read(const v1::GenerateRequest& wire, Request& request) {
  CheckSamplingNumbers(wire.sampling());
  CheckSamplingCounts(wire.sampling());
  CheckLogitBias(wire.sampling());
  CheckStopping(wire.stopping());
  CheckStopStrings(wire.stopping());
  ReadResponse(wire.response(), request.response);
  if (!checks_.ok()) return;
  ReadSampling(wire.sampling(), request);
  ReadStopping(wire.stopping(), request.stopping);
  ReadPrior(wire, request);
  CheckSomethingCanBeChosen(request);
}

void RequestFields::CheckSamplingNumbers(const v1::Sampling& wire) {
  if (wire.has_temperature()) {
    checks_.Number("sampling.temperature", wire.temperature(), {0, kInfinity});
  }
  if (wire.has_top_p()) {
    checks_.Number("sampling.top_p", wire.top_p(),
                   {0, 1, NumberRange::End::kOpen});
  }
  if (wire.has_min_p()) checks_.Number("sampling.min_p", wire.min_p(), {0, 1});
  if (wire.has_repetition_penalty()) {
    checks_.Number("sampling.repetition_penalty", wire.repetition_penalty(),
                   {0, kInfinity, NumberRange::End::kOpen});
  }
  if (wire.has_presence_penalty()) {
    checks_.Number("sampling.presence_penalty", wire.presence_penalty(),
                   {-2, 2});
  }
  if (wire.has_frequency_penalty()) {
    checks_.Number("sampling.frequency_penalty", wire.frequency_penalty(),
                   {-2, 2});
  }
}

void RequestFields::CheckSamplingCounts(const v1::Sampling& wire) {
  checks_.Integer("sampling.top_k", wire.top_k(), 0,
                  std::numeric_limits<int32_t>::max());
  checks_.Integer("sampling.penalty_window", wire.penalty_window(), 0,
                  kMaxPenaltyWindow);
  checks_.Integer("sampling.num_outputs",
                  wire.has_num_outputs() ? wire.num_outputs() : 1, 1,
                  limits_.max_outputs);
  checks_.Count("sampling.allowed_token_ids", wire.allowed_token_ids_size(),
                limits_.max_allowed_token_ids);
  checks_.Ids("sampling.allowed_token_ids", wire.allowed_token_ids(),
              model_.num_pieces);
}

void RequestFields::CheckLogitBias(const v1::Sampling& wire) {
  if (!checks_.Count("sampling.logit_bias", wire.logit_bias_size(),
                     limits_.max_logit_bias_entries)) {
    return;
  }
  for (const auto& [id, bias] : wire.logit_bias()) {
    const std::string field = absl::StrCat("sampling.logit_bias[", id, "]");
    if (id >= static_cast<uint32_t>(model_.num_pieces)) {
      checks_.Add(field, absl::StrCat("is for id ", id, "; ids are from 0 to ",
                                      model_.num_pieces - 1));
    }
    checks_.Number(field, bias,
                   {-limits_.max_logit_bias, limits_.max_logit_bias});
  }
}

void RequestFields::ReadSampling(const v1::Sampling& wire, Request& request) {
  if (wire.has_num_outputs()) {
    request.num_outputs = static_cast<int32_t>(wire.num_outputs());
  }
  SamplingOptions& sampling = request.sampling;
  if (wire.has_temperature()) sampling.temperature = wire.temperature();
  if (wire.has_top_k()) sampling.top_k = static_cast<int32_t>(wire.top_k());
  if (wire.has_top_p()) sampling.top_p = wire.top_p();
  if (wire.has_min_p()) sampling.min_p = wire.min_p();
  if (wire.has_repetition_penalty()) {
    sampling.repetition_penalty = wire.repetition_penalty();
  }
  if (wire.has_presence_penalty()) {
    sampling.presence_penalty = wire.presence_penalty();
  }
  if (wire.has_frequency_penalty()) {
    sampling.frequency_penalty = wire.frequency_penalty();
  }
  if (wire.has_penalty_window()) {
    sampling.penalty_window = static_cast<int32_t>(wire.penalty_window());
  }
  sampling.seed = wire.has_seed() ? wire.seed() : RandomSeed();
  for (const auto& [id, bias] : wire.logit_bias()) {
    sampling.logit_bias[static_cast<int32_t>(id)] = bias;
  }
  auto& allowed = sampling.allowed_token_ids;
  allowed = ToIds(wire.allowed_token_ids());
  std::sort(allowed.begin(), allowed.end());
  allowed.erase(std::unique(allowed.begin(), allowed.end()), allowed.end());
}

void RequestFields::CheckStopStrings(const v1::Stopping& wire) {
  if (!checks_.Count("stopping.stop_strings", wire.stop_strings_size(),
                     limits_.max_stop_strings)) {
    return;
  }
  for (int i = 0; i < wire.stop_strings_size(); ++i) {
    const size_t bytes = wire.stop_strings(i).size();
    if (bytes >= 1 &&
        bytes <= static_cast<size_t>(limits_.max_stop_string_bytes)) {
      continue;
    }
    checks_.Add(absl::StrCat("stopping.stop_strings[", i, "]"),
                absl::StrCat("has ", bytes, " bytes; it must have 1 to ",
                             limits_.max_stop_string_bytes));
  }
}

void RequestFields::CheckStopping(const v1::Stopping& wire) {
  checks_.Integer("stopping.max_tokens", wire.max_tokens(), 0,
                  limits_.max_tokens);
  const uint64_t most =
      wire.has_max_tokens() ? wire.max_tokens() : limits_.default_max_tokens;
  if (wire.min_tokens() > most) {
    checks_.Add("stopping.min_tokens",
                absl::StrCat("is ", wire.min_tokens(),
                             "; the most is max_tokens, which is ", most));
  }
  checks_.Count("stopping.stop_token_ids", wire.stop_token_ids_size(),
                limits_.max_stop_token_ids);
  checks_.Ids("stopping.stop_token_ids", wire.stop_token_ids(),
              model_.vocab_size);
  if (wire.has_time_limit_ms()) {
    checks_.Integer("stopping.time_limit_ms", wire.time_limit_ms(), 1,
                    limits_.max_time_limit_ms);
  }
}

void RequestFields::ReadStopping(const v1::Stopping& wire,
                                 StoppingOptions& stopping) {
  stopping.max_tokens = wire.has_max_tokens()
                            ? static_cast<int64_t>(wire.max_tokens())
                            : kUnsetMaxTokens;
  stopping.min_tokens = static_cast<int64_t>(wire.min_tokens());
  stopping.stop_token_ids = ToIds(wire.stop_token_ids());
  stopping.stop_strings = {wire.stop_strings().begin(),
                           wire.stop_strings().end()};
  stopping.ignore_eos = wire.ignore_eos();
  stopping.include_stop = wire.include_stop();
  if (wire.has_time_limit_ms()) {
    stopping.time_limit = std::chrono::milliseconds(wire.time_limit_ms());
  }
}

void RequestFields::ReadResponse(const v1::ResponseOptions& wire,
                                 ResponseOptions& response) {
  checks_.Integer("response.logprobs", wire.logprobs(), 0,
                  limits_.max_logprobs);
  checks_.Integer("response.prompt_logprobs", wire.prompt_logprobs(), 0,
                  limits_.max_logprobs);
  if (wire.has_logprobs()) {
    response.logprobs = static_cast<int32_t>(wire.logprobs());
  }
  if (wire.has_prompt_logprobs()) {
    response.prompt_logprobs = static_cast<int32_t>(wire.prompt_logprobs());
  }
  response.echo = wire.echo();
}

void RequestFields::ReadPrior(const v1::GenerateRequest& wire,
                              Request& request) {
  const int num_lists = wire.prior_output_ids_size();
  if (num_lists == 0) return;
  if (num_lists != request.num_outputs) {
    checks_.Add("prior_output_ids",
                absl::StrCat("has ", num_lists,
                             " lists; it must have none, or one for each of ",
                             request.num_outputs, " outputs"));
    return;
  }
  const int64_t most = request.stopping.max_tokens == kUnsetMaxTokens
                           ? limits_.default_max_tokens
                           : request.stopping.max_tokens;
  for (int i = 0; i < num_lists; ++i) {
    const auto& ids = wire.prior_output_ids(i).ids();
    const std::string field = absl::StrCat("prior_output_ids[", i, "].ids");
    if (ids.size() > most) {
      checks_.Add(
          field,
          absl::StrCat("has ", ids.size(),
                       " entries; the most is max_tokens, which is ", most));
    }
    checks_.Ids(field, ids, model_.num_pieces);
    request.prior_output_ids.push_back(ToIds(ids));
  }
}

void RequestFields::CheckSomethingCanBeChosen(const Request& request) {
  const auto& allowed = request.sampling.allowed_token_ids;
  const StoppingOptions& stopping = request.stopping;
  if (allowed.empty() || stopping.min_tokens == 0) return;
  const auto ends_output = [&](int32_t id) {
    return Contains(stopping.stop_token_ids, id) ||
           (!stopping.ignore_eos && Contains(model_.eos_token_ids, id));
  };
  if (!std::all_of(allowed.begin(), allowed.end(), ends_output)) return;
  checks_.Add("stopping.min_tokens",
              absl::StrCat("is ", stopping.min_tokens,
                           "; before that EOS and stop tokens are not chosen, "
                           "and sampling.allowed_token_ids has nothing else"));
}

}  // namespace flash
