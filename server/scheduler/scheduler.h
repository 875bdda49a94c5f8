// The decode loop's body: what happens between one step and the next.

#ifndef SERVER_SCHEDULER_SCHEDULER_H_
#define SERVER_SCHEDULER_SCHEDULER_H_

#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "server/model/language_model.h"
#include "server/scheduler/batch.h"
#include "server/scheduler/boundary_states.h"
#include "server/scheduler/engine_options.h"
#include "server/scheduler/free_slots.h"
#include "server/scheduler/live_request.h"
#include "server/scheduler/request.h"
#include "server/scheduler/request_queue.h"
#include "server/scheduler/row_budget.h"
#include "server/scheduler/slot_states.h"
#include "server/scheduler/state_wiper.h"
#include "server/scheduler/text_saver.h"
#include "server/scheduler/token_sampler.h"
#include "server/tokenizer/tokenizer.h"

namespace flash {

// Invariant: a slot is either free or of exactly one output that is not over. A
// request holds one slot for each of its outputs, from its admission until that
// output is over. (One whose time is up in the queue gets none: it only waits
// here for its prior ids to be taken.)
//
// What a request's sink is told depends on the request alone, not on who else
// is here: only when it is told does.
//
// Thread safety: the decode thread only. Takes no locks but the queue's; calls
// sinks with none held.
class Scheduler {
 public:
  // Everything is borrowed and must outlive the scheduler, `parallel_for` (may
  // be empty) excepted. REQUIRES: options that Engine::Create() would accept.
  Scheduler(const EngineOptions& options, LanguageModel* model,
            const Tokenizer* tokenizer, ParallelFor parallel_for,
            RequestQueue* queue);

  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Prior ids that one RunOnce() takes, of all requests together: the bound on
  // the time for which they hold up a step.
  static constexpr int64_t kMaxPriorIds = 4096;
  // States that it copies at boundaries and at ends, likewise. (Time limits
  // that pass at once may add to them.)
  static constexpr int kMaxStateCopies = 4;

  // Admits, steps, delivers and retires, once. Waits for nothing but the step.
  // Returns false if there was nothing to do: then nothing changes before
  // next_wakeup(), a new request in the queue, or another answer of a sink.
  //
  // If the device fails, ends everything: running requests with INTERNAL,
  // queued ones with UNAVAILABLE, and closes the queue. Returns false from then
  // on.
  bool RunOnce();

  // Engine::TakeSnapshot(), now.
  TextSaver::Taken TakeSnapshot(std::string_view owner,
                                std::string_view request_id, int output_index);

  // When the time alone gives RunOnce() something to do; Clock's last time
  // point if never.
  Clock::time_point next_wakeup() const;

  // Ends what is running with `running`, what is queued with `queued`, and
  // closes the queue with `queued`. Neither is OK.
  void EndAll(const absl::Status& running, const absl::Status& queued);

  // Neither running nor queued requests.
  bool idle() const;

  const absl::Status& device_status() const { return device_status_; }

  // All but what the engine adds: queue, heartbeat, draining.
  const EngineStats& stats() const { return stats_; }

 private:
  // A request whose prompt has just been run, in this slot.
  struct PromptEnd {
    LiveRequest* request = nullptr;
    int slot = 0;
  };
  // An output whose slot has come to a chunk boundary.
  struct Boundary {
    Batch::Owner owner;
    bool is_prompt = false;
  };

  // Asks every sink and the clock who may not go on.
  void Inspect();
  // Finishes those whose time is up and whose prior ids have been taken.
  void FinishOverdue();
  bool Admit();
  // Gives every request that has prior ids left the same share of
  // kMaxPriorIds, so that a long list does not hold up the short ones.
  bool TakePrior();
  // Ends prompts of which nothing has to be run.
  bool EndEmptyPrompts();
  bool Step();
  // What the slot that runs the prompt begins with is put there. False if that
  // cannot be: the request fails, or begins anew with what it should have found
  // cached.
  bool Begin(LiveRequest& request);
  void Deliver();
  bool Retire();

  LiveRequest& GoLive(QueuedRequest queued);
  // Tells the sink.
  void Accept(LiveRequest& request);
  // Ends it with what it has: its time is up.
  void FinishForTime(LiveRequest& request);
  // Ends what cannot wait for slots: at once if it fails. If its time is up it
  // goes live without slots, of those with prior ids a few at a time. True if
  // there was any.
  bool EndQueued();
  // Of a request that never had a slot. REQUIRES: `status` is not OK.
  void FailQueued(const QueuedRequest& queued, const absl::Status& status);
  void FailDevice(const absl::Status& status);
  // Asks who wants the slots' states at the boundaries that they have come to.
  void VisitBoundaries();
  // Makes those copies and concludes what is over, as far as the bound on the
  // copies lets it. True if there was anything to do.
  bool CopyStates();
  // Notes what a run has done, and makes jobs of its logits.
  void Account(const Batch::Owner& owner, const Run& run,
               const RunResult& result);
  void AccountPrompt(const Batch::Owner& owner, const Run& run,
                     const RunResult& result);
  void AddPromptJobs(const Batch::Owner& owner, int64_t first_row,
                     const RunResult& result);
  // From that row of the run's logits.
  void AddSampleJob(LiveRequest& request, LiveOutput& output,
                    const RunResult& result, int64_t row);
  void RunJobs();
  void EndPrompt(LiveRequest& request);
  void DeliverToken(TokenJob& job);
  // Goes on with the runs that had drafts: a drafted token that is the one that
  // was drawn is in the slot already, and the next one is drawn from its
  // logits.
  void VerifyDrafts();
  // Whether token `row` of run `index` of the batch is what its output drew.
  bool WasDrawn(size_t index, int64_t row) const;
  // The first `tokens` tokens of the run are the output's.
  void KeepDrafts(size_t index, int64_t tokens);
  // Gives the outputs that go on a copy of the slot that ran the prompt.
  void Fork(const PromptEnd& end);
  // Concludes the outputs that are over and have run what they had to, but for
  // those whose copies are too many. True if there was any.
  bool ConcludeFinished();
  // Tells the sink that an output is over, and takes its slot back.
  void Conclude(LiveRequest& request, LiveOutput& output);
  // `request` is done: the last call to its sink.
  void Done(LiveRequest& request);
  void CountRequests();

  const EngineOptions& options_;
  LanguageModel& model_;
  const Tokenizer& tokenizer_;
  RequestQueue& queue_;
  BatchBuilder batch_builder_;
  RowBudget row_budget_;
  TokenSampler sampler_;
  SlotStates states_;
  TextSaver saver_;
  StateWiper wiper_;
  BoundaryStates boundary_states_;

  FreeSlots free_slots_;
  std::vector<std::unique_ptr<LiveRequest>> live_;  // in order of admission
  absl::Status device_status_;
  EngineStats stats_;

  int num_copies_ = 0;  // that this RunOnce() has made

  // Of the current step; members so that their memory is used again.
  Batch batch_;
  std::vector<RunResult> results_;
  std::vector<TokenJob> jobs_;
  std::vector<PromptEnd> prompt_ends_;
  std::vector<Boundary> boundaries_;
  std::vector<size_t> drafted_;  // runs whose drafts are yet to be verified
  Clock::time_point step_start_;
  Clock::time_point step_end_;
};

}  // namespace flash

#endif  // SERVER_SCHEDULER_SCHEDULER_H_
