// How many floating-point operations a prompt takes.

#ifndef TESTS_BENCH_PROMPT_COST_H_
#define TESTS_BENCH_PROMPT_COST_H_

#include <cstdint>

#include "server/model/config.h"

namespace flash {

// Of the products that positions [begin, end) of a text need, a multiplication
// and an addition being two, without padding, without positions that a row may
// not look at, and without logits. For position t = c C + i, in each layer:
//
//   2 d (2e + s) + 2 e d            the two dense products
//   2 (s + e) (i + 1)               scores, and weights times values
//   2 s e, where c > 0              lin_q . U
//   2 s e                           the position's part of the sum
int64_t PromptOperations(const ModelConfig& config, int64_t begin, int64_t end);

}  // namespace flash

#endif  // TESTS_BENCH_PROMPT_COST_H_
