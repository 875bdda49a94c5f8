#include "server/service/budget.h"

#include "gtest/gtest.h"

namespace flash {
namespace {

TEST(BudgetTest, LendsWhatItHasAndTakesItBack) {
  Budget budget(10, "no more");
  auto first = budget.Take(6);
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(absl::IsResourceExhausted(budget.Take(5).status()));
  EXPECT_TRUE(budget.Take(4).ok());  // and given back at once
  first->reset();
  EXPECT_TRUE(budget.Take(10).ok());
}

TEST(BudgetTest, RefusesNothingToWhoeverIsAlone) {
  Budget budget(10, "no more");
  const auto share = budget.Take(11);
  EXPECT_TRUE(share.ok());
  EXPECT_TRUE(absl::IsResourceExhausted(budget.Take(1).status()));
}

}  // namespace
}  // namespace flash
