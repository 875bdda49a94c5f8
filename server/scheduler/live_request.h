// A request that has slots: how far each of its outputs is, and the rules by
// which a token changes that.

#ifndef SERVER_SCHEDULER_LIVE_REQUEST_H_
#define SERVER_SCHEDULER_LIVE_REQUEST_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "server/model/sampling.h"
#include "server/model/token_history.h"
#include "server/scheduler/drafter.h"
#include "server/scheduler/engine_options.h"
#include "server/scheduler/output_text.h"
#include "server/scheduler/request.h"
#include "server/scheduler/request_queue.h"
#include "server/tokenizer/detokenizer.h"
#include "server/tokenizer/tokenizer.h"

namespace flash {

// The first output runs the prompt; the others wait for a copy of its slot.
// Then each runs its prior ids, if it has any, and decodes until it is over.
// None of this begins before LiveRequest::prior_taken().
enum class Phase { kWaiting, kPrompt, kPrior, kDecode, kOver };

struct LiveOutput {
  int index = 0;  // output_index
  int slot = -1;  // -1: given back
  Phase phase = Phase::kWaiting;
  int64_t num_run = 0;   // kPrompt, kPrior: ids that the slot has been given
  int32_t pending = -1;  // kDecode: the last token, which the slot has not
  int64_t last_row = 0;  // of its last run: whose turn it is (batch.h)

  int64_t num_tokens = 0;  // prior ones included
  int64_t num_prior = 0;   // of these, those that came with the request
  OutputText text;
  TokenHistory history;
  Drafter drafter;
  // Set when the output is over; told to the sink before it is kOver.
  std::optional<Finished> finished = {};
};

// Prior ids pass through the same Take() as sampled ones, so whatever depends
// on what an output has so far is the same for both. They do so bit by bit, and
// all of them before anything is run: whether an output goes on at all is known
// only then, and so is what it has if its time is up.
//
// Thread safety: the decode thread only; const functions from several threads.
class LiveRequest {
 public:
  // `tokenizer` and `options` are borrowed.
  LiveRequest(QueuedRequest queued, const Tokenizer& tokenizer,
              const EngineOptions& options);

  const QueuedRequest& queued() const { return queued_; }
  const Request& request() const { return *queued_.request; }
  RequestSink& sink() const { return *queued_.request->sink; }
  std::vector<LiveOutput>& outputs() { return outputs_; }
  const std::vector<LiveOutput>& outputs() const { return outputs_; }

  // Of an output in kPrompt or kPrior: the ids that its slot is yet to be
  // given.
  std::span<const int32_t> ids_left(const LiveOutput& output) const;
  int64_t num_ids_left(const LiveOutput& output) const {
    return static_cast<int64_t>(ids_left(output).size());
  }
  // How many tokens its slot has been given.
  int64_t position(const LiveOutput& output) const;
  // Whether a token is sampled from the logits after the last of ids_left().
  bool samples_at_end(const LiveOutput& output) const;
  // Whether it is sampled right after the prompt.
  bool samples_after_prompt(const LiveOutput& output) const;

  bool wants_prompt_logprobs() const {
    return request().response.prompt_logprobs >= 0;
  }
  bool wants_prompt() const {
    return wants_prompt_logprobs() || request().response.echo;
  }
  // Makes prompt_tokens() of the first `end` prompt ids (or of all). Bit by bit
  // as the prompt is run: a long one must not hold up a step.
  void DescribePrompt(int64_t end);
  std::vector<TokenInfo>& prompt_tokens() { return prompt_tokens_; }
  // Where prompt id `index` stands in the text. REQUIRES: it is described.
  Tokenizer::Place PromptPlace(int64_t index) const {
    return index <= num_textless_ ? Tokenizer::Place::kFirst
                                  : Tokenizer::Place::kLater;
  }
  // What OnPrompt() is told. Once.
  PromptOutput TakePromptOutput();

  // Takes up to `max_ids` prior ids, up to each output's end. What they release
  // was told when they were generated, so it is dropped. Returns how many.
  int64_t TakePrior(int64_t max_ids);
  // Whether all have been taken.
  bool prior_taken() const;

  // How the output's next token is drawn.
  Draw NextDraw(const LiveOutput& output) const;
  std::span<const int32_t> Forbidden(const LiveOutput& output) const;

  // How many tokens after its pending one can be drafted in a run: if all were
  // right, as many and one more would come, and each has to be allowed and to
  // find room with the reader.
  int max_drafted(const LiveOutput& output) const;

  // Gives `output` its next token. Returns the text that it releases, and sets
  // output.finished if the output is over. REQUIRES: it was not.
  OutputText::Released Take(LiveOutput& output, int32_t id);

  // Sets output.finished. REQUIRES: it was not set.
  void Finish(LiveOutput& output, FinishReason reason);

  // Ends the request with an error; the first one counts.
  void Fail(absl::Status status);
  // Nothing but OnDone(outcome()) is left to do.
  bool over() const;
  const absl::Status& outcome() const { return outcome_; }

  // Asks the sink, and fails the request if its reader has been full for too
  // long.
  void AskWhetherFull(Clock::time_point now);
  bool full() const { return full_since_.has_value(); }

  // When time alone will change something.
  Clock::time_point NextWakeup() const;

  void MarkStep(Clock::time_point now);   // the first call counts
  void MarkToken(Clock::time_point now);  // likewise
  Usage usage() const;                    // of the prior ids, those taken
  Timings timings(Clock::time_point now) const;

 private:
  void MakeOutputs(const Tokenizer& tokenizer);
  bool HasPriorLeft(const LiveOutput& output) const;
  // Finishes the output if it has all the tokens that it may have.
  void FinishIfFull(LiveOutput& output);
  bool IsEos(int32_t id) const;
  // Tokens that the output may still have.
  int64_t NumTokensLeft(const LiveOutput& output) const;

  const QueuedRequest queued_;
  const EngineOptions& options_;
  std::vector<int32_t> stop_ids_;  // sorted; with EOS unless it is ignored
  std::vector<LiveOutput> outputs_;
  std::vector<TokenInfo> prompt_tokens_;
  Detokenizer prompt_detokenizer_;
  std::string prompt_text_;   // with echo
  int64_t num_textless_ = 0;  // prompt ids before the first that adds text
  absl::Status outcome_;
  int64_t room_ = 0;  // what the sink said last
  std::optional<Clock::time_point> full_since_;
  std::optional<Clock::time_point> first_step_;
  std::optional<Clock::time_point> first_token_;
};

}  // namespace flash

#endif  // SERVER_SCHEDULER_LIVE_REQUEST_H_
