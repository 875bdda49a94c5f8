// From logits to the next token: one request's rules, in a fixed order.
//
// The order (each stage sees the result of the one before it):
//   1. logit_bias is added; ids outside allowed_token_ids, ids that have no
//      piece (>= num_pieces) and ids forbidden for now (`forbidden`) are
//      masked;
//   2. repetition penalty (ids of prompt and output): a positive logit is
//      divided by it, another multiplied; then the presence penalty (once) and
//      the frequency penalty (as often as it stands there) are subtracted (ids
//      of the output), over the last `penalty_window` tokens;
//   3. temperature (0 = greedy: the highest, ties to the lowest id);
//   4. top_k: the k highest, ties to the lower id;
//   5. top_p: the shortest run of the highest (ties to the lower id) that has
//      at least top_p of the probability that is left, and at least one id;
//   6. min_p: those with at least min_p times the highest probability;
//   7. one draw: the first id, in ascending order of ids, up to which more than
//      u of the probability that is left lies, u being UniformRandom(draw).
//
// The probabilities are float32 weights exp((logit - highest) / temperature),
// rounded to a multiple of 2^-34 (so an id that is less likely than 2^-35 times
// the highest is never drawn). Sums of such numbers are exact in double up to
// 2^19 ids: no order of summation, batch or instruction set can change a token.
// The exponential is a polynomial of our own (exponential.h), so that no
// math library can either.

#ifndef SERVER_MODEL_SAMPLING_H_
#define SERVER_MODEL_SAMPLING_H_

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "server/model/token_history.h"

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

// Whether the options look back at all. If not, a TokenHistory(0) will do.
bool HasPenalties(const SamplingOptions& options);

// Which draw this is: a random number is a function of (seed, output,
// position) alone.
struct Draw {
  uint64_t seed = 0;
  uint32_t output_index = 0;
  uint64_t position = 0;  // absolute position t of the token that is drawn
};

// Returns a number in [0, 1), a multiple of 2^-53, from Philox4x32-10
// (philox.h): the key is the seed, the counter position (two words, low first)
// and output_index, and the result is made of the answer's first two words.
double UniformRandom(const Draw& draw);

// Memory for one sampling thread, allocated once for logits of up to
// `vocab_size` ids. What it holds between calls means nothing.
struct SamplingScratch {
  explicit SamplingScratch(int32_t vocab_size);

  std::vector<float> logits;   // [V]
  std::vector<float> weights;  // [V]
  std::vector<int32_t> ids;    // [V]
  std::vector<uint64_t> keys;  // [V]
};

struct SampleInput {
  std::span<const float> logits;  // [V], raw
  const SamplingOptions& options;
  const TokenHistory& history;
  // Masked for this draw: EOS and stop tokens before min_tokens.
  std::span<const int32_t> forbidden;
  int32_t num_pieces = 0;  // ids at and above it are masked
  Draw draw;
};

// Returns the next token's id.
//   INTERNAL: a raw logit is NaN or +infinity. (-infinity masks its id.)
//   INVALID_ARGUMENT: no id is left: all are masked.
// Ids in the options, the history or `forbidden` that are outside [0, V) are
// ignored. Options out of their range do not crash; the service refuses them.
// A pure function of `input`. REQUIRES: `scratch` was made for at least V ids
// and is used by no other thread.
absl::StatusOr<int32_t> SampleToken(const SampleInput& input,
                                    SamplingScratch& scratch);

}  // namespace flash

#endif  // SERVER_MODEL_SAMPLING_H_
