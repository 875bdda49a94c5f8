#include "tests/bench/prompt_cost.h"

#include <gtest/gtest.h>

namespace flash {
namespace {

// d 3, e 5, s 2, C 4, two layers.
ModelConfig SmallConfig() {
  ModelConfig config;
  config.hidden_size = 3;
  config.expanded_size = 5;
  config.query_key_size = 2;
  config.chunk_size = 4;
  config.num_layers = 2;
  config.quadratic = QuadraticConfig();
  config.linear = LinearConfig();
  return config;
}

TEST(PromptCostTest, IsTheHandCountOfTwoPositions) {
  // Position 5 is the second of the second chunk. Multiplications in a layer:
  // u, v and z 3 * 12 = 36; output 15; two scores of 2 and two values of 5: 14;
  // lin_q . U 10; the sum 10. Together 85, two operations each, two layers.
  EXPECT_EQ(PromptOperations(SmallConfig(), 5, 6), 2 * 2 * 85);
  // Position 3 is the last of the first: four of 7 are 28, and no U yet.
  EXPECT_EQ(PromptOperations(SmallConfig(), 3, 4), 2 * 2 * (51 + 28 + 10));
}

TEST(PromptCostTest, AddsUpOverPositions) {
  int64_t total = 0;
  for (int64_t t = 0; t < 11; ++t) {
    total += PromptOperations(SmallConfig(), t, t + 1);
  }
  EXPECT_EQ(PromptOperations(SmallConfig(), 0, 11), total);
}

TEST(PromptCostTest, LeavesOutABranchThatIsOff) {
  ModelConfig config = SmallConfig();
  config.quadratic.reset();
  EXPECT_EQ(PromptOperations(config, 5, 6), 2 * 2 * (51 + 20));
  config = SmallConfig();
  config.linear.reset();
  EXPECT_EQ(PromptOperations(config, 5, 6), 2 * 2 * (51 + 14));
}

}  // namespace
}  // namespace flash
