#include "server/memory_plan.h"

#include "gmock/gmock.h"

namespace flash {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

ServerConfig InMemory() {
  ServerConfig config;
  config.session_store = "memory";
  return config;
}

TEST(MemoryPlanTest, LeavesMostToTheSlots) {
  const auto plan = PlanMemory(InMemory(), 16 * kGiB);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->session_store, 2 * kGiB);
  EXPECT_EQ(plan->session_cache, kGiB);
  EXPECT_EQ(plan->prefix_cache, 2 * kGiB);
  EXPECT_EQ(plan->slots, 11 * kGiB);
}

TEST(MemoryPlanTest, TakesNoMemoryForAStoreOnDisk) {
  ServerConfig config = InMemory();
  config.session_store = "dir:/somewhere";
  config.session_store_bytes = 1000 * kGiB;
  const auto plan = PlanMemory(config, 16 * kGiB);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->session_store, 1000 * kGiB);
  EXPECT_EQ(plan->slots, 13 * kGiB);
}

TEST(MemoryPlanTest, TakesNoMemoryForWhatIsOff) {
  ServerConfig config;
  config.prefix_cache_bytes = 0;
  const auto plan = PlanMemory(config, 16 * kGiB);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->slots, 16 * kGiB);
  EXPECT_EQ(plan->session_cache, 0);
}

TEST(MemoryPlanTest, RefusesWhatLeavesNothingForSlots) {
  ServerConfig config = InMemory();
  config.session_store_bytes = 10 * kGiB;
  config.prefix_cache_bytes = 6 * kGiB;
  config.session_cache_bytes = 0;
  const auto plan = PlanMemory(config, 16 * kGiB);
  EXPECT_TRUE(absl::IsResourceExhausted(plan.status()));
  EXPECT_THAT(std::string(plan.status().message()),
              testing::HasSubstr("nothing for slots"));
  config.prefix_cache_bytes = 5 * kGiB;
  EXPECT_TRUE(PlanMemory(config, 16 * kGiB).ok());
}

}  // namespace
}  // namespace flash
