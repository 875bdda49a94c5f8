#include "server/memory_plan.h"

#include <limits>
#include <optional>

#include "gmock/gmock.h"

namespace flash {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kGiB = int64_t{1} << 30;

// Of a model like the paper's.
const StateLayout kLayout = {.slot_bytes = 48 * kMiB,
                             .boundary_bytes = 19 * kMiB};

ServerConfig InMemory() {
  ServerConfig config;
  config.session_store = "memory";
  return config;
}

int64_t SumOf(const MemoryPlan& plan) {
  int64_t sum = 0;
  for (const auto& [part, bytes] : PartsOf(plan)) sum += bytes;
  return sum;
}

TEST(MemoryPlanTest, HasABudgetForEverythingThatHoldsStates) {
  ServerConfig config = InMemory();
  config.checkpoint_every_tokens = 100;
  const auto plan = PlanMemory(config, {.host = 16 * kGiB}, kLayout);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const int64_t most = MostSessionBytes(kLayout.slot_bytes);
  EXPECT_EQ(plan->session_store, 2 * kGiB);
  EXPECT_EQ(plan->session_cache, kGiB);
  EXPECT_EQ(plan->prefix_cache, 2 * kGiB);
  EXPECT_EQ(plan->checkpoints, 256 * kMiB);
  EXPECT_EQ(plan->max_transfers, 5);
  EXPECT_EQ(plan->session_transfers, (2 * 5 + 3 * kStoreWorkers) * most);
  EXPECT_GT(plan->num_slots, 10);
  EXPECT_EQ(plan->slots, plan->num_slots * kLayout.slot_bytes);
  EXPECT_EQ(plan->beside_slots,
            plan->num_slots * kLayout.boundary_bytes + 5 * kLayout.slot_bytes);
  // Each slot can have a request that goes on from a session and leaves one.
  EXPECT_EQ(plan->session_requests, plan->num_slots * 2 * most);
}

TEST(MemoryPlanTest, NeverGivesAwayMoreThanThereIs) {
  for (const int64_t slot_bytes :
       {1000 * kMiB, 48 * kMiB, 10'000 * int64_t{1}}) {
    const StateLayout layout = {.slot_bytes = slot_bytes,
                                .boundary_bytes = slot_bytes / 2};
    for (int64_t usable = kMiB; usable < 100 * kGiB; usable += usable / 3) {
      for (const std::optional<int> slots :
           {std::optional<int>(), std::optional<int>(1), std::optional(100)}) {
        for (const char* store : {"", "memory", "dir:/somewhere"}) {
          ServerConfig config;
          config.session_store = store;
          config.checkpoint_every_tokens = 100;
          config.slots = slots;
          const auto plan = PlanMemory(config, {.host = usable}, layout);
          if (!plan.ok()) continue;
          EXPECT_LE(SumOf(*plan), usable);
          EXPECT_EQ(plan->num_slots, slots.value_or(plan->num_slots));
          if (slots.has_value()) continue;
          EXPECT_GE(plan->num_slots, 1);
          EXPECT_LE(plan->num_slots, 64);
          EXPECT_TRUE(plan->num_slots == 1 ||
                      SumOf(*plan) <= usable - usable / 4);
        }
      }
    }
  }
}

TEST(MemoryPlanTest, TakesNoMemoryForAStoreOnDisk) {
  ServerConfig config = InMemory();
  const auto in_memory = PlanMemory(config, {.host = 16 * kGiB}, kLayout);
  config.session_store = "dir:/somewhere";
  config.session_store_bytes = 1000 * kGiB;
  const auto plan = PlanMemory(config, {.host = 16 * kGiB}, kLayout);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->max_store_bytes, 1000 * kGiB);
  EXPECT_EQ(plan->session_store, 0);
  EXPECT_GT(plan->num_slots, in_memory->num_slots);
}

TEST(MemoryPlanTest, TakesNoMemoryForWhatIsOff) {
  ServerConfig config;
  config.prefix_cache_bytes = 0;
  config.slots = 16 * 1024 / 48;
  const auto plan = PlanMemory(config, {.host = 16 * kGiB}, kLayout);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(SumOf(*plan), plan->slots);
  config.slots = *config.slots + 1;
  const absl::Status status =
      PlanMemory(config, {.host = 16 * kGiB}, kLayout).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("342 slots"));
}

TEST(MemoryPlanTest, RefusesWhatLeavesNothingForSlots) {
  ServerConfig config = InMemory();
  config.session_store_bytes = 9 * kGiB;
  config.prefix_cache_bytes = 6 * kGiB;
  config.session_cache_bytes = 0;
  const absl::Status status =
      PlanMemory(config, {.host = 16 * kGiB}, kLayout).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr("nothing for slots"));
  config.prefix_cache_bytes = 5 * kGiB;
  EXPECT_TRUE(PlanMemory(config, {.host = 16 * kGiB}, kLayout).ok());
  const StateLayout fits_nowhere = {.slot_bytes =
                                        std::numeric_limits<int64_t>::max()};
  EXPECT_TRUE(absl::IsResourceExhausted(
      PlanMemory(config, {.host = 16 * kGiB}, fits_nowhere).status()));
}

TEST(MemoryPlanTest, PutsSlotsIntoTheCardsMemoryAndAllElseIntoTheHosts) {
  const auto on_host = PlanMemory(InMemory(), {.host = 64 * kGiB}, kLayout);
  const auto plan =
      PlanMemory(InMemory(), {.host = 64 * kGiB, .card = 100 * kGiB}, kLayout);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->session_store, on_host->session_store);
  EXPECT_EQ(plan->prefix_cache, on_host->prefix_cache);
  EXPECT_GT(plan->num_slots, on_host->num_slots);
  EXPECT_EQ(plan->slots, plan->num_slots * kLayout.slot_bytes);
  EXPECT_LE(SumOf(*plan) - plan->slots, 48 * kGiB);
}

TEST(MemoryPlanTest, TakesNineTenthsOfACardAndAtMostSoManySlots) {
  ServerConfig config;
  config.prefix_cache_bytes = 0;
  const auto slots = [&](int64_t card) {
    const auto plan =
        PlanMemory(config, {.host = 16 * kGiB, .card = card}, kLayout);
    return plan.ok() ? plan->num_slots : 0;
  };
  EXPECT_EQ(slots(100 * kGiB), 256);
  EXPECT_EQ(slots(100 * kLayout.slot_bytes), 90);
  EXPECT_EQ(slots(kLayout.slot_bytes), 0);
  config.slots = 100;
  EXPECT_EQ(slots(100 * kLayout.slot_bytes), 100);
  EXPECT_EQ(slots(100 * kLayout.slot_bytes - 1), 0);
}

TEST(MemoryPlanTest, RefusesMoreThanTheHostHasWhateverTheCardHas) {
  ServerConfig config = InMemory();
  config.prefix_cache_bytes = 20 * kGiB;
  EXPECT_TRUE(absl::IsResourceExhausted(
      PlanMemory(config, {.host = 16 * kGiB, .card = 100 * kGiB}, kLayout)
          .status()));
}

}  // namespace
}  // namespace flash
