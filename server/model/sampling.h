// From logits to the next token: one request's rules, in a fixed order.
//
// The order (each stage sees the result of the one before it):
//   1. logit_bias is added; ids outside allowed_token_ids, ids that have no
//      piece (>= num_pieces) and ids forbidden for now (`forbidden`) are
//      masked;
//   2. repetition penalty (ids of prompt and output), presence and frequency
//      penalty (ids of the output), over the last `penalty_window` tokens;
//   3. temperature (0 = greedy: the highest, ties to the lowest id);
//   4. top_k, 5. top_p, 6. min_p, each on the probabilities that are left;
//   7. one draw with a counter-based random number.
// Sums run in a fixed order, so equal inputs give equal tokens everywhere.

#ifndef SERVER_MODEL_SAMPLING_H_
#define SERVER_MODEL_SAMPLING_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"

namespace flash {

struct SamplingOptions {
  float temperature = 1;          // >= 0
  int32_t top_k = 0;              // 0 = off
  float top_p = 1;                // (0, 1]
  float min_p = 0;                // [0, 1]
  float repetition_penalty = 1;   // > 0
  float presence_penalty = 0;     // [-2, 2]
  float frequency_penalty = 0;    // [-2, 2]
  int32_t penalty_window = 1024;  // tokens; 0 = none, at most kMaxPenaltyWindow
  uint64_t seed = 0;              // the effective one
  std::map<int32_t, float> logit_bias;
  std::vector<int32_t> allowed_token_ids;  // sorted, unique; empty = all
};

inline constexpr int32_t kMaxPenaltyWindow = 65536;

// Which draw this is: a random number is a function of (seed, output,
// position) alone.
struct Draw {
  uint64_t seed = 0;
  uint32_t output_index = 0;
  uint64_t position = 0;  // absolute position t of the token that is drawn
};

// Returns a number in [0, 1) from Philox4x32-10 (Salmon et al. 2011).
double UniformRandom(const Draw& draw);

// What a request has seen and said, as far as penalties look back. Both ends
// are bounded by `penalty_window`.
class TokenHistory;  // token_history.h

// Scratch memory for one sampler thread, allocated once: V entries.
struct SamplingScratch;

struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0;  // natural logarithm, of the raw logits
  int32_t rank = 0;   // 1 = the most likely; ties count the lower id first
};

}  // namespace flash

#endif  // SERVER_MODEL_SAMPLING_H_
