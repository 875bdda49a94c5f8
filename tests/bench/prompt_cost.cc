#include "tests/bench/prompt_cost.h"

namespace flash {

int64_t PromptOperations(const ModelConfig& config, int64_t begin,
                         int64_t end) {
  const int64_t d = config.hidden_size;
  const int64_t e = config.expanded_size;
  const int64_t s = config.query_key_size;
  int64_t products = 0;
  for (int64_t t = begin; t < end; ++t) {
    products += d * (2 * e + s) + e * d;
    if (config.quadratic.has_value()) {
      products += (s + e) * (t % config.chunk_size + 1);
    }
    if (config.linear.has_value()) {
      products += (t >= config.chunk_size ? 2 : 1) * s * e;
    }
  }
  return 2 * products * config.num_layers;
}

}  // namespace flash
