// From the wire to a Request: the only place that decides what a client may
// ask for.
//
// In three parts: Parse() is all but the prompt, so that a request's id can be
// claimed before ReadPrompt(), which takes time in proportion to the prompt,
// and before what it goes on from is fetched; Settle() is what depends on both.

#ifndef SERVER_SERVICE_REQUEST_PARSER_H_
#define SERVER_SERVICE_REQUEST_PARSER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "flash/v1/inference.pb.h"
#include "server/scheduler/request.h"
#include "server/service/facts.h"
#include "server/service/limits.h"
#include "server/service/request_sessions.h"
#include "server/tokenizer/tokenizer.h"

namespace flash {

// The `input` of a request: one of the first two is set, or none where a
// session goes on as it is. Views: the message must outlive it.
struct PromptInput {
  const std::string* text = nullptr;
  const v1::TokenIds* token_ids = nullptr;
  // Where it stands: kLater if it is appended to a session's text.
  Tokenizer::Place place = Tokenizer::Place::kFirst;

  bool empty() const { return text == nullptr && token_ids == nullptr; }
};

PromptInput InputOf(const v1::GenerateRequest& wire);
PromptInput InputOf(const v1::ScoreRequest& wire);

// What a request says of sessions. REQUIRES: Parse() took it.
SessionUse SessionUseOf(const v1::GenerateRequest& wire);
inline SessionUse SessionUseOf(const v1::ScoreRequest&) { return {}; }

// Errors, of every function here, have the details of errors.h:
//   INVALID_ARGUMENT: naming field, value and limit, of each violation.
//   NOT_FOUND: the client wants another model.
//   FAILED_PRECONDITION: text, and the model has no tokenizer.
//
// Thread safety: all functions are const and may be called from any thread.
class RequestParser {
 public:
  // `tokenizer` is borrowed.
  RequestParser(const ServiceLimits& limits, const ModelFacts& model,
                const Tokenizer* tokenizer)
      : limits_(limits), model_(model), tokenizer_(*tokenizer) {}

  // Everything but the prompt, the session and what depends on their length. A
  // request that does not name itself, or its seed, gets a random one.
  absl::StatusOr<std::unique_ptr<Request>> Parse(
      const v1::GenerateRequest& wire) const;

  // A request that only runs the prompt, with logprobs.
  absl::StatusOr<std::unique_ptr<Request>> Parse(
      const v1::ScoreRequest& wire) const;

  // Fills in request.prompt. `request` comes from Parse() of the same message.
  absl::Status ReadPrompt(PromptInput input, Request& request) const;

  // Checks what depends on the text's length, once request.prompt and
  // request.start are there, and fills in request.stopping.max_tokens where the
  // client did not set it.
  absl::Status Settle(Request& request) const;

  // OK if one message can hold the answer to `request`, which is complete.
  absl::Status CheckUnarySize(const Request& request) const;

  // At most limits().max_prompt_tokens ids, of both.
  absl::StatusOr<std::vector<int32_t>> Tokenize(
      const v1::TokenizeRequest& wire) const;
  absl::StatusOr<std::string> Detokenize(
      const v1::DetokenizeRequest& wire) const;

  // The bytes of each of `ids`, as a text that they begin.
  std::vector<std::string> PiecesOf(const std::vector<int32_t>& ids) const;

  // OK if `wanted` is served here.
  absl::Status CheckModel(const std::string& wanted) const;

  const ServiceLimits& limits() const { return limits_; }
  const ModelFacts& model() const { return model_; }

 private:
  template <typename WireRequest>
  absl::Status CheckModelOf(const WireRequest& wire) const;
  absl::StatusOr<std::vector<int32_t>> Encode(const std::string& text,
                                              Tokenizer::Place place) const;
  absl::StatusOr<std::vector<int32_t>> PromptOf(PromptInput input,
                                                const Request& request) const;

  const ServiceLimits limits_;
  const ModelFacts model_;
  const Tokenizer& tokenizer_;
};

}  // namespace flash

#endif  // SERVER_SERVICE_REQUEST_PARSER_H_
