// Turns the logits of a step into tokens and logprobs, on several threads.

#ifndef SERVER_SCHEDULER_TOKEN_SAMPLER_H_
#define SERVER_SCHEDULER_TOKEN_SAMPLER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "server/model/logprobs.h"
#include "server/model/sampling.h"
#include "server/scheduler/engine_options.h"
#include "server/scheduler/live_request.h"
#include "server/tokenizer/tokenizer.h"

namespace flash {

// One row of logits and what is to be made of it. Two jobs may have the same
// row: the first tokens of a request's outputs.
struct TokenJob {
  LiveRequest* request = nullptr;
  // The output whose next token is drawn. Null: the logits are about prompt id
  // `prompt_index`, whose logprob is put into prompt_tokens().
  LiveOutput* output = nullptr;
  int64_t prompt_index = 0;
  std::span<const float> logits;  // [V]

  // The answer. INTERNAL: a logit is not finite. INVALID_ARGUMENT: no token is
  // allowed.
  absl::Status status;
  TokenInfo token;  // with `output`
};

// Every job's answer is a function of the job alone: neither the other jobs nor
// the number of threads change it.
//
// Thread safety: the decode thread only.
class TokenSampler {
 public:
  // `tokenizer` is borrowed. Allocates scratch memory for `num_samplers`
  // threads.
  TokenSampler(int vocab_size, int num_samplers, const Tokenizer& tokenizer,
               ParallelFor parallel_for);

  // Fills in the answers. Changes nothing in the requests but prompt_tokens().
  void Run(std::vector<TokenJob>& jobs);

 private:
  void RunJob(TokenJob& job, SamplingScratch& scratch) const;
  absl::Status Sample(TokenJob& job, SamplingScratch& scratch) const;
  absl::Status ScorePrompt(TokenJob& job) const;

  const Tokenizer& tokenizer_;
  const ParallelFor parallel_for_;
  std::vector<SamplingScratch> scratch_;  // [num_samplers]
};

}  // namespace flash

#endif  // SERVER_SCHEDULER_TOKEN_SAMPLER_H_
