#include "server/scheduler/request_limits.h"

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "server/model/sampling.h"
#include "server/scheduler/request_queue.h"
#include "server/tokenizer/detokenizer.h"

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

absl::Status BadStart(const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat("what the request goes on from is damaged: ", what));
}

bool IsIncomplete(std::string_view bytes) {
  Utf8Assembler assembler;
  std::string whole;
  assembler.Push(bytes, whole);
  return whole.empty();
}

absl::Status CheckStart(const Snapshot& start, const RequestLimits& limits) {
  if (start.position < 0 ||
      start.position > std::numeric_limits<int64_t>::max() / 2 ||
      (start.position == 0) != (start.state == nullptr)) {
    return BadStart(absl::StrCat("a state after ", start.position, " tokens"));
  }
  absl::Status pending = CheckIds("pending", start.pending, limits.vocab_size);
  if (!pending.ok()) return BadStart(std::string(pending.message()));
  const std::vector<RecentToken>& recent = start.recent;
  for (const RecentToken& token : recent) {
    if (token.id < 0 || token.id >= limits.vocab_size) {
      return BadStart(absl::StrCat("id ", token.id));
    }
  }
  const bool ends_with_pending =
      recent.size() >= start.pending.size() &&
      recent.size() <= size_t{kMaxPenaltyWindow} &&
      static_cast<int64_t>(recent.size()) <= start.num_tokens() &&
      std::equal(
          start.pending.begin(), start.pending.end(),
          recent.end() - start.pending.size(),
          [](int32_t id, const RecentToken& token) { return token.id == id; });
  if (!ends_with_pending) return BadStart("the recent tokens");
  if (!IsIncomplete(start.incomplete) || !IsValidUtf8(start.held)) {
    return BadStart("the text");
  }
  return absl::OkStatus();
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
    absl::Status start = CheckStart(*request.start, limits);
    if (!start.ok()) return start;
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
