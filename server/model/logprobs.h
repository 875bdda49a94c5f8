// Log-probabilities of raw logits: what the model says, before any of the
// request's sampling rules.

#ifndef SERVER_MODEL_LOGPROBS_H_
#define SERVER_MODEL_LOGPROBS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace flash {

// The most candidates that a request may ask for.
inline constexpr int32_t kMaxLogprobs = 20;

struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0;  // natural logarithm, of the raw logits; may be -infinity
  int32_t rank = 0;   // 1 = the most likely; ties count the lower id first
};

// The distribution after one token, over all V ids (those of a padded
// vocabulary included).
//
// logprob(id) = float(logit - (max + log(sum exp(logit - max)))): the terms of
// the sum are float32, the sum and the rest are double, in a fixed order. So
// an id's logprob is the same bits whatever else is asked for; it is within
// 1e-6 of the exact one.
//
// Thread safety: immutable; any thread. Does not own the logits, which must
// stay as they are.
class Logprobs {
 public:
  // One pass over the logits for the maximum, one for the sum. Returns INTERNAL
  // if a logit is NaN or +infinity, or if all are -infinity.
  // REQUIRES: at least one logit.
  static absl::StatusOr<Logprobs> Of(std::span<const float> logits);

  // Of one id; takes a pass for the rank. REQUIRES: 0 <= id < V.
  TokenLogprob Id(int32_t id) const;

  // Of one id without its rank (0). REQUIRES: 0 <= id < V.
  TokenLogprob IdUnranked(int32_t id) const;

  // The k most likely, the most likely first, ties by the lower id; ranks are
  // 1, 2, ... Fewer than k if fewer logits are above -infinity.
  // REQUIRES: k >= 0.
  std::vector<TokenLogprob> Top(int32_t k) const;

 private:
  Logprobs(std::span<const float> logits, double log_normalizer)
      : logits_(logits), log_normalizer_(log_normalizer) {}

  std::span<const float> logits_;
  double log_normalizer_;  // log(sum exp(logit))
};

}  // namespace flash

#endif  // SERVER_MODEL_LOGPROBS_H_
