#include "server/scheduler/batch.h"

#include <map>
#include <set>
#include <utility>

#include "gmock/gmock.h"
#include "tests/server/scheduler/scheduler_fixture.h"

namespace flash {
namespace {

using testing::ElementsAre;

// What the scheduler puts into its steps, as the model sees it.
class BatchTest : public SchedulerTest {
 protected:
  // Sizes of the runs of a prompt of `length` ids that is alone.
  std::vector<int> RunsOfAPrompt(int length) {
    Start({});
    RunAlone(MakeRequest(Ids(length), 0));
    std::vector<int> sizes;
    for (const auto& step : model_->steps) {
      EXPECT_EQ(step.size(), 1u);
      sizes.push_back(static_cast<int>(step[0].tokens.size()));
    }
    return sizes;
  }

  static int Rows(const std::vector<FakeModel::RecordedRun>& step) {
    int rows = 0;
    for (const auto& run : step) rows += static_cast<int>(run.tokens.size());
    return rows;
  }

  // Of a slot, in all steps.
  int RowsOf(int slot) const {
    int rows = 0;
    for (const auto& step : model_->steps) {
      for (const auto& run : step) {
        if (run.slot == slot) rows += static_cast<int>(run.tokens.size());
      }
    }
    return rows;
  }

  // 5 ms, and 0.25 for each row.
  static Clock::duration TimeOf(
      const std::vector<FakeModel::RecordedRun>& step) {
    return std::chrono::microseconds(5000 + 250 * Rows(step));
  }

  // A larger model, on which a step takes TimeOf() it.
  void StartTimed() {
    Start({.chunk_size = 256,
           .num_slots = 32,
           .max_rows = 256,
           .max_logits_rows = 64});
    model_->after_step = [this](const auto& step) { now_ += TimeOf(step); };
  }
};

TEST_F(BatchTest, EndsRunsAtChunkBoundaries) {
  EXPECT_THAT(RunsOfAPrompt(1), ElementsAre(1));
  EXPECT_THAT(RunsOfAPrompt(7), ElementsAre(7));
  EXPECT_THAT(RunsOfAPrompt(8), ElementsAre(8));
  EXPECT_THAT(RunsOfAPrompt(9), ElementsAre(8, 1));
  EXPECT_THAT(RunsOfAPrompt(16), ElementsAre(8, 8));
  EXPECT_THAT(RunsOfAPrompt(17), ElementsAre(8, 8, 1));
}

TEST_F(BatchTest, AsksForNoLogitsThatNobodyNeeds) {
  RunAlone(MakeRequest(Ids(17), 2));
  ASSERT_EQ(model_->steps.size(), 4u);
  EXPECT_EQ(model_->steps[0][0].logits, LogitsWanted::kNone);
  EXPECT_EQ(model_->steps[1][0].logits, LogitsWanted::kNone);
  EXPECT_EQ(model_->steps[2][0].logits, LogitsWanted::kLast);
  EXPECT_EQ(model_->steps[3][0].logits, LogitsWanted::kLast);
  Start({});
  RunAlone(MakeRequest(Ids(3), 0));
  EXPECT_EQ(model_->steps[0][0].logits, LogitsWanted::kNone);
}

TEST_F(BatchTest, NeverRunsTheLastToken) {
  Sink sink = RunAlone(MakeRequest(Ids(3), 4));
  EXPECT_EQ(sink->outputs[0].ids.size(), 4u);
  EXPECT_EQ(model_->steps.size(), 4u);  // the prompt and three tokens
}

TEST_F(BatchTest, GivesEveryDecodingOutputARowBesideALongPrompt) {
  Sink first = Submit(MakeRequest(Ids(2), 30));
  Sink second = Submit(MakeRequest(Ids(3), 30));
  RunSteps(1);
  Submit(MakeRequest(Ids(120), 1));
  RunSteps(15);
  // One token a step, whatever the prompt does.
  EXPECT_EQ(first->outputs[0].ids.size(), 16u);
  EXPECT_EQ(second->outputs[0].ids.size(), 16u);
  Run();
}

TEST_F(BatchTest, FillsTheRowBudgetWithTheOldestPromptsFirst) {
  options_.max_step_rows = 12;
  Start({});
  for (int i = 0; i < 3; ++i) Submit(MakeRequest(Ids(8, i), 1));
  RunSteps(1);
  ASSERT_EQ(model_->steps[0].size(), 2u);
  EXPECT_EQ(model_->steps[0][0].tokens, Ids(8, 0));
  EXPECT_EQ(model_->steps[0][1].tokens.size(), 4u);
  Run();
  ASSERT_EQ(model_->steps.size(), 2u);
  EXPECT_EQ(Rows(model_->steps[1]), 12);
}

TEST_F(BatchTest, TakesTurnsWhenLogitsAreScarce) {
  Start({.num_slots = 6, .max_rows = 24, .max_logits_rows = 4});
  std::vector<Sink> sinks;
  for (int i = 0; i < 6; ++i) {
    sinks.push_back(Submit(MakeRequest(Ids(2, i), 100)));
  }
  RunSteps(4);  // every prompt has been run
  std::map<int, size_t> before;
  for (int i = 0; i < 6; ++i) before[i] = sinks[i]->outputs[0].ids.size();
  RunSteps(30);
  for (int i = 0; i < 6; ++i) {
    // 30 steps of 4 logits for 6 outputs.
    EXPECT_NEAR(sinks[i]->outputs[0].ids.size() - before[i], 20, 1);
  }
  Run();
}

TEST_F(BatchTest, LetsPromptsInThoughDecodersCouldTakeEveryRow) {
  Start({.num_slots = 6, .max_rows = 4, .max_logits_rows = 4});
  std::vector<Sink> sinks;
  for (int i = 0; i < 5; ++i) {
    sinks.push_back(Submit(MakeRequest(Ids(1, i), 1000)));
  }
  RunSteps(10);
  Sink late = Submit(MakeRequest(Ids(9), 1));
  RunSteps(10);  // at least one row in each step
  EXPECT_TRUE(late->done());
  const size_t before = sinks[0]->outputs[0].ids.size();
  RunSteps(5);
  EXPECT_GT(sinks[0]->outputs[0].ids.size(), before);
}

TEST_F(BatchTest, KeepsDecodersGoingWhilePromptLogprobsTakeLogits) {
  Start({.num_slots = 5, .max_rows = 24, .max_logits_rows = 4});
  std::vector<Sink> sinks;
  for (int i = 0; i < 4; ++i) {
    sinks.push_back(Submit(MakeRequest(Ids(1, i), 1000)));
  }
  RunSteps(2);
  Request scored = MakeRequest(Ids(20), 0);
  scored.response.prompt_logprobs = 0;
  Sink sink = Submit(std::move(scored));
  const size_t before = sinks[0]->outputs[0].ids.size();
  RunSteps(24);  // 20 logits, one in a step; some steps measure the others
  EXPECT_TRUE(sink->done());
  EXPECT_GE(sinks[0]->outputs[0].ids.size() - before, 17u);
}

TEST_F(BatchTest, ServesManyShortPromptsWithoutStoppingTheDecoders) {
  Sink steady = Submit(MakeRequest(Ids(2), 200));
  RunSteps(1);
  for (int i = 0; i < 200; ++i) Submit(MakeRequest(Ids(5, i), 2));
  RunSteps(60);
  EXPECT_EQ(steady->outputs[0].ids.size(), 61u);
  Run();
  EXPECT_EQ(scheduler_->stats().finished_requests, 201);
}

TEST_F(BatchTest, LetsShortPromptsPastALongOneThatKeepsHalfOfTheRows) {
  Start({.chunk_size = 64, .num_slots = 6, .max_rows = 64});
  Sink first = Submit(MakeRequest(Ids(6400), 1));
  RunSteps(1);
  EXPECT_EQ(RowsOf(0), 64);
  Sink second = Submit(MakeRequest(Ids(6400, 2), 1));
  for (int round = 0; round < 20; ++round) {
    Sink late = Submit(MakeRequest(Ids(20, 3 + round), 1));
    RunSteps(3);
    EXPECT_TRUE(late->done());
  }
  EXPECT_GE(RowsOf(0), 64 + 60 * 32);
  EXPECT_GE(RowsOf(1), 60 * 32 - 20 * 64);
  Run();
  EXPECT_TRUE(first->done());
  EXPECT_TRUE(second->done());
}

TEST_F(BatchTest, LetsEveryOneOfManyLongPromptsGoOn) {
  Start({.chunk_size = 64, .num_slots = 6, .max_rows = 64});
  for (int i = 0; i < 6; ++i) Submit(MakeRequest(Ids(6400, i), 1));
  RunSteps(50);
  EXPECT_GE(RowsOf(0), 50 * 32);
  for (int slot = 1; slot < 6; ++slot) {
    EXPECT_NEAR(RowsOf(slot), 50 * 32 / 5, 32);
  }
  Run();
}

TEST_F(BatchTest, DividesAChunkEvenlyOverTheStepsThatItTakes) {
  options_.max_step_rows = 100;
  Start({.chunk_size = 128, .max_rows = 128});
  RunAlone(MakeRequest(Ids(256 + 30), 0));
  std::vector<int> rows;
  for (const auto& step : model_->steps) rows.push_back(Rows(step));
  EXPECT_THAT(rows, ElementsAre(64, 64, 64, 64, 30));
}

TEST_F(BatchTest, HoldsTheGapsOfStreamsAtTheTargetWhilePromptsOfAnyLengthRun) {
  options_.target_step_time = std::chrono::milliseconds(60);
  StartTimed();
  std::vector<Sink> streams;
  for (int i = 0; i < 20; ++i) {
    streams.push_back(Submit(MakeRequest(Ids(2, i), 10000)));
  }
  RunSteps(30);
  const size_t begin = model_->steps.size();
  Sink prompt = Submit(MakeRequest(Ids(4096), 1));
  Sink other = Submit(MakeRequest(Ids(600, 2), 1));
  RunSteps(80);
  EXPECT_TRUE(prompt->done());
  EXPECT_TRUE(other->done());
  // At most an eighth of the prompts' 50 ms more.
  for (size_t step = begin; step < model_->steps.size(); ++step) {
    EXPECT_LE(TimeOf(model_->steps[step]), std::chrono::milliseconds(67));
  }
  for (const Sink& stream : streams) {  // a token in every step
    EXPECT_EQ(stream->outputs[0].ids.size(), model_->steps.size());
  }
}

TEST_F(BatchTest, TakesALittleMoreRowsWhereThatSavesAStep) {
  // Of prompts' rows 40 ms has room for 116, and 35 for 96.
  for (const auto& [target_ms, rows] : {std::pair(40, 128), {35, 86}}) {
    options_.target_step_time = std::chrono::milliseconds(target_ms);
    StartTimed();
    for (int i = 0; i < 24; ++i) Submit(MakeRequest(Ids(2), 10000));
    RunSteps(10);
    Submit(MakeRequest(Ids(4096), 1));
    RunSteps(20);
    EXPECT_NEAR(Rows(model_->steps.back()), 24 + rows, 1);
  }
}

TEST_F(BatchTest, GivesAllTheRowsToPromptsOnceNobodyDecodes) {
  options_.target_step_time = std::chrono::milliseconds(30);
  StartTimed();
  Sink stream = Submit(MakeRequest(Ids(2), 50));
  RunSteps(10);
  Submit(MakeRequest(Ids(8192), 1));
  RunSteps(20);
  EXPECT_LT(Rows(model_->steps.back()), 128);
  while (!stream->done()) RunSteps(1);
  RunSteps(2);
  EXPECT_EQ(Rows(model_->steps.back()), 256);
  Run();
}

}  // namespace
}  // namespace flash
