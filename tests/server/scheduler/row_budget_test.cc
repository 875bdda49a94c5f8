#include "server/scheduler/row_budget.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace flash {
namespace {

Clock::duration Milliseconds(double number) {
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double, std::milli>(number));
}

// A machine on which a step takes 5 ms, 1 for each decoding row and 0.25 for
// each row of a prompt, unless told otherwise; and prompts without end.
class RowBudgetTest : public testing::Test {
 protected:
  static constexpr int kMaxRows = 256;

  void SetTarget(double target_ms) { budget_.emplace(Milliseconds(target_ms)); }

  double TimeOf(int decode_rows, int prompt_rows) const {
    return slowness_ * (5 + decode_rows + 0.25 * prompt_rows);
  }

  // Milliseconds that the step took, which had `rows_` of prompts.
  double Step(int decode_rows) {
    rows_ = std::min(kMaxRows, budget_->PromptRows(decode_rows));
    const double time = TimeOf(decode_rows, rows_);
    budget_->Record(decode_rows, rows_, Milliseconds(time * Disturbance()));
    return time;
  }

  // The times of the last of so many steps.
  std::vector<double> Run(int decode_rows, int steps, int last) {
    std::vector<double> times;
    num_prompt_rows_ = 0;
    for (int step = 0; step < steps; ++step) {
      times.push_back(Step(decode_rows));
      num_prompt_rows_ += rows_;
    }
    return {times.end() - last, times.end()};
  }
  double Longest(int decode_rows, int steps, int last) {
    const std::vector<double> times = Run(decode_rows, steps, last);
    return *std::max_element(times.begin(), times.end());
  }

  void WithoutPrompts(int decode_rows, int steps) {
    for (int step = 0; step < steps; ++step) {
      budget_->Record(decode_rows, 0,
                      Milliseconds(TimeOf(decode_rows, 0) * Disturbance()));
    }
  }

  // Between 1 - noise_ and 1 + noise_.
  double Disturbance() {
    return 1 + std::uniform_real_distribution<>(-noise_, noise_)(random_);
  }

  std::optional<RowBudget> budget_{std::in_place, std::nullopt};
  double slowness_ = 1;
  double noise_ = 0;
  int rows_ = 0;                 // of prompts in the last step
  int64_t num_prompt_rows_ = 0;  // of the last Run()
  std::mt19937 random_{1};
};

TEST_F(RowBudgetTest, BoundsNothingWhileNobodyDecodes) {
  EXPECT_GT(budget_->PromptRows(0), 1000000);
  Run(31, 200, 1);
  EXPECT_GT(budget_->PromptRows(0), 1000000);
}

TEST_F(RowBudgetTest, ComesToTheTargetFromNothing) {
  SetTarget(60);
  EXPECT_NEAR(Longest(31, 100, 40), 60, 0.5);
  EXPECT_EQ(rows_, 96);  // (60 - 36) / 0.25
}

TEST_F(RowBudgetTest, MakesStepsAFixedTimesAsLongAsWithoutPrompts) {
  WithoutPrompts(31, 10);
  EXPECT_NEAR(Longest(31, 100, 40), RowBudget::kAutoFactor * 36, 0.5);
}

TEST_F(RowBudgetTest, LearnsWithoutAStepMuchOverTheTarget) {
  SetTarget(60);
  WithoutPrompts(31, 10);
  EXPECT_LT(Longest(31, 100, 100), 61);
}

TEST_F(RowBudgetTest, FollowsAMachineThatGetsSlowerAndFasterAgain) {
  SetTarget(100);
  Run(31, 100, 1);
  slowness_ = 2;
  EXPECT_NEAR(Longest(31, 300, 40), 100, 2);
  slowness_ = 1;
  EXPECT_NEAR(Longest(31, 300, 40), 100, 2);
}

TEST_F(RowBudgetTest, FollowsTheNumberOfStreams) {
  Run(31, 100, 1);
  for (const int decode_rows : {4, 60, 1, 31}) {
    const double base = TimeOf(decode_rows, 0);
    const double most = TimeOf(decode_rows, kMaxRows);
    EXPECT_NEAR(Longest(decode_rows, 200, 40),
                std::min(most, RowBudget::kAutoFactor * base), 0.05 * base);
  }
}

TEST_F(RowBudgetTest, MeasuresTheStreamsAloneNowAndThenAndNoMore) {
  const auto num_without = [&](int steps) {
    int count = 0;
    for (int step = 0; step < steps; ++step) {
      Step(31);
      count += rows_ == 0;
    }
    return count;
  };
  num_without(100);
  EXPECT_NEAR(num_without(3300), 100, 1);
}

TEST_F(RowBudgetTest, KeepsPromptsGoingThoughStreamsComeAndGoInEveryStep) {
  int64_t total = 0;
  for (int step = 0; step < 900; ++step) {
    Step(step % 2 == 0 ? 1 : 60);
    total += rows_;
  }
  EXPECT_GE(total, 700 * RowBudget::kMinRows);
}

TEST_F(RowBudgetTest, KeepsPromptsGoingThoughTheTargetCannotBeMet) {
  SetTarget(10);
  Run(31, 330, 1);
  EXPECT_GE(num_prompt_rows_, 310 * RowBudget::kMinRows);
  EXPECT_LE(num_prompt_rows_, 330 * RowBudget::kMinRows);
}

TEST_F(RowBudgetTest, IsNearTheTargetInSpiteOfNoise) {
  noise_ = 0.25;
  Run(31, 100, 1);
  const std::vector<double> times = Run(31, 3000, 3000);
  const double most = RowBudget::kAutoFactor * 36;
  EXPECT_LT(std::count_if(times.begin(), times.end(),
                          [&](double time) { return time > 1.2 * most; }),
            30);
  EXPECT_GT(num_prompt_rows_, 0.9 * 3000 * (most - 36) / 0.25);
}

TEST_F(RowBudgetTest, IsNotMovedByASingleStepThatWasHeldUp) {
  WithoutPrompts(31, 10);
  Run(31, 101, 1);
  const int before = rows_;
  budget_->Record(31, before, std::chrono::seconds(10));
  EXPECT_GT(budget_->PromptRows(31), 0.6 * before);
  Run(31, 60, 1);
  EXPECT_NEAR(rows_, before, 0.05 * before);
  budget_->Record(31, 0, std::chrono::seconds(10));  // one without prompts
  EXPECT_LT(budget_->PromptRows(31), 1.5 * before);
  Run(31, 300, 1);
  EXPECT_NEAR(rows_, before, 0.05 * before);
}

TEST_F(RowBudgetTest, ForgetsThatTheVeryFirstStepsWereSlow) {
  budget_->Record(31, 0, std::chrono::seconds(1));
  Step(31);
  budget_->Record(31, RowBudget::kMinRows, std::chrono::seconds(1));
  EXPECT_NEAR(Longest(31, 200, 40), RowBudget::kAutoFactor * 36, 2);
}

TEST_F(RowBudgetTest, TakesStepsThatTakeNoTime) {
  slowness_ = 0;
  Run(31, 100, 1);
  EXPECT_EQ(rows_, kMaxRows);
}

TEST_F(RowBudgetTest, GivesTheLeastWhereTheTargetIsBelowTheStreamsAlone) {
  SetTarget(1);
  WithoutPrompts(31, 8);
  for (int step = 0; step < 100; ++step) {
    // Rows of prompts that seem to take no time.
    budget_->Record(31, RowBudget::kMinRows, Milliseconds(TimeOf(31, 0)));
    const int rows = budget_->PromptRows(31);
    EXPECT_TRUE(rows == 0 || rows == RowBudget::kMinRows) << rows;
  }
}

}  // namespace
}  // namespace flash
