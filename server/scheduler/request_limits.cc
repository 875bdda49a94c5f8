#include "server/scheduler/request_limits.h"

#include <algorithm>
#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/model/sampling.h"
#include "server/scheduler/request_queue.h"
#include "server/scheduler/snapshot_check.h"

namespace flash {
namespace {

absl::Status TooMany(const std::string& field, int64_t value,
                     const std::string& limit_name, int64_t limit) {
  return absl::InvalidArgumentError(absl::StrCat(
      field, " is ", value, ", the limit (", limit_name, ") is ", limit));
}

absl::Status CheckIds(const std::string& field, std::span<const int32_t> ids,
                      int vocab_size) {
  const auto bad = std::find_if(ids.begin(), ids.end(), [&](int32_t id) {
    return id < 0 || id >= vocab_size;
  });
  if (bad == ids.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, "[", bad - ids.begin(), "] is ", *bad,
                   ", ids are from 0 to ", vocab_size - 1));
}

int64_t TokensBefore(const Request& request) {
  return request.start == nullptr ? 0 : request.start->num_tokens();
}

absl::Status CheckPrompt(const Request& request, const RequestLimits& limits) {
  const int64_t length = static_cast<int64_t>(request.prompt.size());
  if (length == 0) {
    const Snapshot* start = request.start.get();
    if (start == nullptr) {
      return absl::InvalidArgumentError("prompt has no ids");
    }
    if (start->ended || start->pending.empty()) {
      return absl::InvalidArgumentError(
          "prompt has no ids, and what it goes on from has ended");
    }
  }
  const int64_t text = TokensBefore(request) + length;
  if (limits.max_length.has_value() && text > *limits.max_length) {
    return TooMany(request.start == nullptr
                       ? "the prompt's length"
                       : "the length of the prompt and the text before it",
                   text, "max_length", *limits.max_length);
  }
  const ResponseOptions& response = request.response;
  const int64_t kept = length * (1 + std::max(response.prompt_logprobs, 0));
  if ((response.echo || response.prompt_logprobs >= 0) &&
      kept > limits.max_prompt_logprobs) {
    return TooMany("the prompt's length times (1 + prompt_logprobs)", kept,
                   "max_prompt_logprobs", limits.max_prompt_logprobs);
  }
  return CheckIds("prompt", request.prompt, limits.vocab_size);
}

absl::Status CheckPrior(const Request& request, const RequestLimits& limits) {
  const auto& prior = request.prior_output_ids;
  if (prior.empty()) return absl::OkStatus();
  if (prior.size() != static_cast<size_t>(request.num_outputs)) {
    return absl::InvalidArgumentError(
        absl::StrCat("prior_output_ids has ", prior.size(),
                     " lists, num_outputs is ", request.num_outputs));
  }
  for (size_t output = 0; output < prior.size(); ++output) {
    const std::string field = absl::StrCat("prior_output_ids[", output, "]");
    const int64_t length = static_cast<int64_t>(prior[output].size());
    if (length > request.stopping.max_tokens) {
      return TooMany(field + "'s length", length, "max_tokens",
                     request.stopping.max_tokens);
    }
    const int64_t total = TokensBefore(request) +
                          static_cast<int64_t>(request.prompt.size()) + length;
    if (limits.max_length.has_value() && total > *limits.max_length) {
      return TooMany(absl::StrCat("the length of the prompt and ", field),
                     total, "max_length", *limits.max_length);
    }
    absl::Status ids = CheckIds(field, prior[output], limits.vocab_size);
    if (!ids.ok()) return ids;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRequest(const Request& request, const RequestLimits& limits) {
  if (request.num_outputs < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "num_outputs is ", request.num_outputs, ", the least is 1"));
  }
  if (request.num_outputs > limits.num_slots) {
    return TooMany("num_outputs", request.num_outputs, "the number of slots",
                   limits.num_slots);
  }
  if (request.stopping.max_tokens < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "max_tokens is ", request.stopping.max_tokens, ", the least is 0"));
  }
  if (request.start != nullptr) {
    const absl::Status start = CheckSnapshot(*request.start, limits.vocab_size);
    if (!start.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("what the request goes on from is damaged: ",
                       std::string(start.message())));
    }
  }
  absl::Status prompt = CheckPrompt(request, limits);
  if (!prompt.ok()) return prompt;
  absl::Status prior = CheckPrior(request, limits);
  if (!prior.ok()) return prior;
  const int64_t num_tokens = NumTokens(request);
  if (num_tokens > limits.max_queued_tokens) {
    return TooMany("the number of prompt and prior ids", num_tokens,
                   "max_queued_tokens", limits.max_queued_tokens);
  }
  return absl::OkStatus();
}

}  // namespace flash
