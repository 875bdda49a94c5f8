// One output of a request that has slots.

#ifndef SERVER_SCHEDULER_LIVE_OUTPUT_H_
#define SERVER_SCHEDULER_LIVE_OUTPUT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "server/model/token_history.h"
#include "server/scheduler/drafter.h"
#include "server/scheduler/engine_options.h"
#include "server/scheduler/output_text.h"
#include "server/scheduler/recent_tokens.h"
#include "server/scheduler/request.h"
#include "server/scheduler/rewind.h"
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
  RecentTokens recent;  // with an ending EOS or stop token only if it is text
  // Stop text that is hidden is among the recent tokens, for want of a way back
  // to where it begins.
  bool hides_text = false;
  // Of an output that is to be saved and has stop strings: that way. And the
  // next token's place once it was taken.
  std::optional<Rewind> rewind = {};
  std::optional<Tokenizer::Place> cut_place = {};
  // Set when the output is over; told to the sink before it is kOver.
  std::optional<Finished> finished = {};
};

// The outputs of `request` after its prompt, none of them over.
std::vector<LiveOutput> MakeOutputs(const Request& request,
                                    const Tokenizer& tokenizer,
                                    const EngineOptions& options);

}  // namespace flash

#endif  // SERVER_SCHEDULER_LIVE_OUTPUT_H_
