// What a client asked for, in our own words, and where the answer goes.
//
// server/service makes a Request from the wire; the scheduler runs it and tells
// its sink what happens, in this order:
//   OnAccepted, then OnPrompt if asked for, then OnToken and one OnFinished for
//   each output (those of different outputs may interleave), then OnDone.
// A request that fails gets OnDone alone, at whatever point that is. One whose
// time limit passes before its prompt has run has no OnPrompt.
//
// The token that ends an output is told like any other and counts; an EOS or
// stop token's text is part of the text only with include_stop. If one token
// brings several ends about, the reason is the first of: EOS, stop token, stop
// string, max_tokens, max_length.

#ifndef SERVER_SCHEDULER_REQUEST_H_
#define SERVER_SCHEDULER_REQUEST_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/model/sampling.h"
#include "server/scheduler/snapshot.h"

namespace flash {

using Clock = std::chrono::steady_clock;

struct StoppingOptions {
  // Tokens an output may have, those of prior_output_ids included. 0: only the
  // prompt is run.
  int64_t max_tokens = 0;
  // EOS and stop tokens are never sampled before this many, and stop strings
  // that would be complete before it are passed over.
  int64_t min_tokens = 0;
  std::vector<int32_t> stop_token_ids;
  std::vector<std::string> stop_strings;
  bool ignore_eos = false;  // EOS is then a token like any other
  bool include_stop =
      false;  // the stop string or token's text is part of the text
  std::optional<Clock::duration>
      time_limit;  // from submission; finishes with TIME_LIMIT
};

struct ResponseOptions {
  // Negative: no logprobs. 0: of the chosen token. K: and of the K most likely.
  int32_t logprobs = -1;
  int32_t prompt_logprobs =
      -1;             // likewise, for every prompt token but the first
  bool echo = false;  // the prompt's text and ids come back in OnPrompt
};

struct Candidate {
  int32_t id = 0;
  float logprob = 0;  // natural logarithm, of the raw logits
  int32_t rank = 0;   // 1 is the most likely
  std::string piece;  // its bytes
};

// One token that was chosen or given, with what was asked about it.
struct TokenInfo {
  int32_t id = 0;
  std::string piece;  // its bytes; may be part of a UTF-8 character
  std::optional<float> logprob;
  int32_t rank = 0;                   // with logprob
  std::vector<Candidate> candidates;  // the most likely first
};

struct Accepted {
  uint64_t seed = 0;  // the effective one
  int64_t prompt_tokens = 0;
  int64_t cached_prompt_tokens = 0;
};

struct PromptOutput {
  std::vector<TokenInfo>
      tokens;        // with echo or prompt_logprobs: one for each id
  std::string text;  // with echo
};

struct TokenOutput {
  int32_t output_index = 0;
  int64_t token_index =
      0;  // 0 is the output's first token, prior ones included
  TokenInfo token;
  // Text that this token released: valid UTF-8, perhaps empty. The deltas of an
  // output, in order, are its text.
  std::string text;
  int64_t text_offset = 0;  // bytes of the output's text before `text`
};

enum class FinishReason {
  kEos,
  kStopToken,
  kStopString,
  kMaxTokens,
  kMaxLength,
  kTimeLimit,
  // One of the wire's reasons, and here only to have them all: never told now,
  // as a cancelled request has no Finished but OnDone(CANCELLED).
  kCancelled,
};

struct Finished {
  int32_t output_index = 0;
  FinishReason reason = FinishReason::kEos;
  int32_t stop_token_id = -1;  // for kEos and kStopToken
  std::string stop_string;     // for kStopString
  std::string text;            // what was held back and is now part of the text
  int64_t text_offset = 0;
  int64_t num_tokens = 0;  // of this output, prior ones included
  // With Request::save: the output's text as it can be gone on with. What was
  // held back of an output that may go on is in it, and not in `text`. Null if
  // more than kMaxPenaltyWindow of its tokens have not been run (its time was
  // up before that).
  std::shared_ptr<const Snapshot> snapshot;
};

// Counts are the same for a stream and a unary call. Those of a request that
// fails are of what it had come to: prior ids may be missing.
struct Usage {
  int64_t prompt_tokens = 0;
  int64_t cached_prompt_tokens = 0;
  int64_t completion_tokens = 0;  // of all outputs, prior ones included
  int64_t longest_tokens = 0;     // of the longest text, with what was before
  int64_t prior_tokens =
      0;  // of completion_tokens, those that came with the request
};

struct Timings {
  Clock::duration queue{0};   // submission to the first step
  Clock::duration prompt{0};  // first step to the first sampled token
  Clock::duration decode{0};  // first sampled token to the end
};

// Where a request's answer goes. Every On… is called on the decode thread, must
// not wait, and is not called after OnDone.
class RequestSink {
 public:
  virtual ~RequestSink() = default;

  virtual void OnAccepted(const Accepted& accepted) = 0;
  virtual void OnPrompt(PromptOutput prompt) = 0;
  virtual void OnToken(TokenOutput token) = 0;
  virtual void OnFinished(Finished finished) = 0;
  // The last call. OK if every output has finished; CANCELLED,
  // DEADLINE_EXCEEDED, INTERNAL, RESOURCE_EXHAUSTED (the reader was too slow),
  // UNAVAILABLE (shutdown) otherwise.
  virtual void OnDone(const absl::Status& status, const Usage& usage,
                      const Timings& timings) = 0;

  // Asked on the decode thread before each step, also while the request is
  // queued (then under the queue's lock: they must not call Submit()). A
  // cancelled request stays cancelled, and leaves before the next step; one
  // whose reader has no room is left out of steps until it has some (only its
  // prompt goes on, up to its last token). When a request is cancelled or has
  // room again, the sink calls Engine::Notify().
  virtual bool IsCancelled() const = 0;
  // How many tokens its reader has room for; 0: it is full. Each output that
  // decodes is told one token in any case.
  virtual int64_t Room() const = 0;
};

struct Request {
  std::string id;
  std::string owner;  // who may save it; prefixes are shared within an owner
  // What the prompt goes on from; null: a text of its own. Without a prompt the
  // output that was saved goes on: its text, its random numbers.
  std::shared_ptr<const Snapshot> start;
  // BOS included where the model wants it. At least one id, or a start with a
  // pending one that has not ended.
  std::vector<int32_t> prompt;
  bool save = false;  // each Finished has a snapshot
  int32_t num_outputs = 1;
  // Empty, or one list for each output: ids that were generated for it
  // elsewhere. They are run as a prompt; everything then goes on as if this
  // server had generated them: nothing is told about them, but they count. An
  // output that they have already ended finishes after the prompt; ids after
  // that end are ignored. (EOS or a stop token before min_tokens, and what was
  // passed over when it was generated, is no end.)
  std::vector<std::vector<int32_t>> prior_output_ids;
  SamplingOptions sampling;
  StoppingOptions stopping;
  ResponseOptions response;
  std::optional<Clock::time_point> deadline;
  std::shared_ptr<RequestSink> sink;
};

}  // namespace flash

#endif  // SERVER_SCHEDULER_REQUEST_H_
