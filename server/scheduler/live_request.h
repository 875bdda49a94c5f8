// A request that has slots: how far each of its outputs is, and the rules by
// which a token changes that.

#ifndef SERVER_SCHEDULER_LIVE_REQUEST_H_
#define SERVER_SCHEDULER_LIVE_REQUEST_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "server/model/sampling.h"
#include "server/scheduler/engine_options.h"
#include "server/scheduler/live_output.h"
#include "server/scheduler/output_text.h"
#include "server/scheduler/prefix_states.h"
#include "server/scheduler/request.h"
#include "server/scheduler/request_queue.h"
#include "server/tokenizer/detokenizer.h"
#include "server/tokenizer/tokenizer.h"

namespace flash {

// Of a request that leaves checkpoints.
struct CheckpointProgress {
  PrefixKey key = {};         // of what was run, up to the last boundary
  int64_t next_position = 0;  // the next checkpoint is there or after it
  bool has_put = false;
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

  // What the slot that runs the prompt begins with, and whether that has been
  // done.
  const SavedState& beginning() const { return beginning_; }
  bool begun() const { return begun_; }
  // Returns the state, which is not held any more: a cache's budget counts only
  // what the cache holds. (Of outputs that have a way back it is that.)
  std::shared_ptr<const std::string> MarkBegun();
  // Lets it begin with a state of its prompt (and prior ids). REQUIRES: nothing
  // has been run, and nothing it goes on from.
  void BeginAt(SavedState beginning);
  // Or not after all.
  void BeginAnew();
  // The ids of the prompt, and of the prior ones if one output alone has them.
  int64_t num_ids_to_begin_with() const;
  // Prompt tokens that were not run.
  int64_t cached_prompt_tokens() const;
  // The slot that runs the prompt. REQUIRES: begun().
  int prompt_slot() const { return prompt_slot_; }

  // Of an output in kPrompt or kPrior: the ids that its slot is yet to be
  // given.
  std::span<const int32_t> ids_left(const LiveOutput& output) const;
  int64_t num_ids_left(const LiveOutput& output) const {
    return static_cast<int64_t>(ids_left(output).size());
  }
  // How many tokens its slot has been given.
  int64_t position(const LiveOutput& output) const;
  // Prompt ids among the first `num_run` of what a slot is given in kPrompt.
  int64_t PromptIdsIn(int64_t num_run) const {
    return std::max<int64_t>(0, num_run - num_lead_);
  }
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
  // The outputs have what the prompt gave them: each goes on with its prior ids
  // or with what was sampled. One that is over already and is saved runs its
  // prior ids but for the last, all the same.
  void EndPrompt();

  // Makes prompt_tokens() of the first `end` prompt ids (or of all). Bit by bit
  // as the prompt is run: a long one must not hold up a step.
  void DescribePrompt(int64_t end);
  std::vector<TokenInfo>& prompt_tokens() { return prompt_tokens_; }
  // Where prompt id `index` stands in the text. REQUIRES: it is described.
  Tokenizer::Place PromptPlace(int64_t index) const {
    return index <= num_textless_ ? first_place_ : Tokenizer::Place::kLater;
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

  // The text of `output` as far as it has come, but for its state.
  Snapshot Text(const LiveOutput& output) const;

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

  // The states that it holds, once it is done: nothing but its destructor may
  // be called after that.
  std::vector<std::shared_ptr<const void>> TakeStates();

  // Asks the sink, and fails the request if its reader has been full for too
  // long.
  void AskWhetherFull(Clock::time_point now);
  bool full() const { return full_since_.has_value(); }

  // When time alone will change something.
  Clock::time_point NextWakeup() const;

  // States of its slots that are yet to be copied (boundary_states.h): until
  // then none of them may run.
  int num_copies_due() const { return num_copies_due_; }
  void AddCopiesDue(int change) { num_copies_due_ += change; }

  CheckpointProgress& checkpoint_progress() { return checkpoint_progress_; }
  const CheckpointProgress& checkpoint_progress() const {
    return checkpoint_progress_;
  }

  void MarkStep(Clock::time_point now);   // the first call counts
  void MarkToken(Clock::time_point now);  // likewise
  Usage usage() const;                    // of the prior ids, those taken
  Timings timings(Clock::time_point now) const;

 private:
  // Finds out what is to be run.
  void Begin();
  // Tokens of the text before this request's.
  int64_t num_before() const {
    const Snapshot* start = request().start.get();
    return start == nullptr ? 0 : start->num_tokens();
  }
  // What of kPrior is run.
  std::span<const int32_t> PriorToRun(const LiveOutput& output) const;
  uint32_t DrawIndex(const LiveOutput& output) const;
  bool HasPriorLeft(const LiveOutput& output) const;
  // Finishes the output if it has all the tokens that it may have.
  void FinishIfFull(LiveOutput& output);
  // Cuts off what is hidden of the text, and the tokens that led there.
  void CutOff(LiveOutput& output);
  bool IsEos(int32_t id) const;
  // Tokens that the output may still have.
  int64_t NumTokensLeft(const LiveOutput& output) const;

  const QueuedRequest queued_;
  const Tokenizer& tokenizer_;
  const EngineOptions& options_;
  std::vector<int32_t> stop_ids_;  // sorted; with EOS unless it is ignored
  SavedState beginning_;
  bool begun_ = false;
  CheckpointProgress checkpoint_progress_;
  int num_copies_due_ = 0;
  int prompt_slot_ = -1;
  // What a slot is given in kPrompt: ids that the start left pending, then the
  // prompt. Points into the request, or to joined_.
  std::span<const int32_t> given_;
  std::vector<int32_t> joined_;
  int64_t num_lead_ = 0;  // ids of given_ before the prompt
  std::vector<LiveOutput> outputs_;
  std::vector<TokenInfo> prompt_tokens_;
  const Tokenizer::Place first_place_;  // of the prompt's first id
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
