// How an engine is set up, and what it tells about itself.

#ifndef SERVER_SCHEDULER_ENGINE_OPTIONS_H_
#define SERVER_SCHEDULER_ENGINE_OPTIONS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "server/scheduler/prefix_states.h"
#include "server/scheduler/request.h"

namespace flash {

// Calls body(0) … body(n - 1), perhaps on several threads at once, and returns
// when all of them have returned. Called on the decode thread only.
using ParallelFor =
    std::function<void(int n, const std::function<void(int)>& body)>;

struct EngineOptions {
  // The queue is full when it holds this many requests, or when one more would
  // take the ids in it (prompt and prior) over this many.
  int64_t max_queued_requests = 256;
  int64_t max_queued_tokens = int64_t{1} << 22;

  // Rows of one step. 0: LanguageModel::max_rows(), which is also the most it
  // can be.
  int max_step_rows = 0;

  // Guesses at an output's next tokens that a step may verify (drafter.h),
  // while few outputs decode: steps then have rows to spare. Changes no token.
  // 0: none; at most kMaxDraftedTokens.
  int max_drafted_tokens = 0;

  // What a step may take while prompts run beside decoding outputs: by this
  // their rows are chosen (row_budget.h). None: a multiple of what the decoding
  // rows take alone.
  std::optional<Clock::duration> target_step_time;

  // Ids that end an output unless the request ignores them.
  std::vector<int32_t> eos_token_ids;

  // Tokens of prompt and output together that the model was made for; none: no
  // limit (the state has a constant size).
  std::optional<int64_t> max_length;

  // With prompt_logprobs or echo, the most that the prompt's length times
  // (1 + prompt_logprobs) can be: that many ids with their logprobs are kept in
  // memory until the prompt has run.
  int64_t max_prompt_logprobs = int64_t{1} << 20;

  // A request whose reader has been full for this long without a break is
  // ended.
  Clock::duration slow_reader_timeout = std::chrono::seconds(30);

  // An idle decode thread wakes this often to show that it is alive.
  Clock::duration heartbeat_interval = std::chrono::seconds(1);

  // States of prompts' beginnings; null: none are kept. Borrowed.
  PrefixStates* prefix_states = nullptr;
  // Where running requests of one output leave their state, at the first chunk
  // boundary after every so many tokens; null, or 0: nowhere. Borrowed.
  Checkpoints* checkpoints = nullptr;
  int64_t checkpoint_every_tokens = 0;

  // How many outputs are sampled at once: the threads behind the ParallelFor.
  int num_samplers = 1;

  // Told once, on the decode thread, when the device has failed and every
  // request has been answered. Must not call Engine::Stop(). May be empty.
  std::function<void(const absl::Status&)> on_device_failure;

  // The time; tests have their own.
  std::function<Clock::time_point()> now = [] { return Clock::now(); };
};

// A snapshot; the counters only rise.
struct EngineStats {
  int64_t queued_requests = 0;
  int64_t queued_tokens = 0;     // prompt and prior ids of those
  int64_t running_requests = 0;  // out of the queue and not done
  int64_t blocked_requests = 0;  // of these, those whose reader is full
  int num_slots = 0;
  int free_slots = 0;
  int64_t steps = 0;
  int64_t step_rows = 0;          // rows of all steps
  int64_t prompt_tokens = 0;      // run, prior ones included
  int64_t generated_tokens = 0;   // sampled
  int64_t drafted_tokens = 0;     // guesses that were run
  int64_t accepted_tokens = 0;    // of these, those that were sampled
  int64_t finished_requests = 0;  // OnDone() with OK
  int64_t failed_requests = 0;    // OnDone() with anything else
  Clock::duration last_step{0};   // how long the last step took
  int last_step_rows = 0;
  // When the decode thread last came round: after every step, and at least
  // every heartbeat_interval while there is nothing to do. Old while a step
  // hangs.
  Clock::time_point heartbeat;
  bool draining = false;
};

}  // namespace flash

#endif  // SERVER_SCHEDULER_ENGINE_OPTIONS_H_
