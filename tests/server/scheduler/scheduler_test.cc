#include "server/scheduler/scheduler.h"

#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "server/model/logprobs.h"
#include "tests/server/scheduler/scheduler_fixture.h"

namespace flash {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr int32_t kEos = 200;

TEST_F(SchedulerTest, DoesNothingWithoutRequests) {
  EXPECT_FALSE(scheduler_->RunOnce());
  EXPECT_TRUE(scheduler_->idle());
  EXPECT_EQ(scheduler_->next_wakeup(), Clock::time_point::max());
  EXPECT_THAT(model_->steps, IsEmpty());
}

TEST_F(SchedulerTest, AnswersInTheOrderThatRequestPromises) {
  Request request = MakeRequest(Ids(5), 3);
  request.response.echo = true;
  Sink sink = RunAlone(std::move(request));
  EXPECT_TRUE(sink->status().ok());
  ASSERT_TRUE(sink->accepted.has_value());
  EXPECT_EQ(sink->accepted->seed, 17u);
  EXPECT_EQ(sink->accepted->prompt_tokens, 5);
  ASSERT_TRUE(sink->prompt.has_value());
  ASSERT_EQ(sink->prompt->tokens.size(), 5u);
  EXPECT_EQ(sink->prompt->tokens[2].id, Ids(5)[2]);
  EXPECT_FALSE(sink->prompt->tokens[2].logprob.has_value());
  const std::vector<int32_t> ids = Ids(5);
  EXPECT_EQ(sink->prompt->text, std::string(ids.begin(), ids.end()));
  EXPECT_EQ(sink->outputs[0].ids.size(), 3u);
  EXPECT_EQ(sink->outputs[0].finished->reason, FinishReason::kMaxTokens);
  EXPECT_EQ(sink->outputs[0].finished->num_tokens, 3);
}

TEST_F(SchedulerTest, RunsOnlyThePromptWithoutTokensToMake) {
  Sink sink = RunAlone(MakeRequest(Ids(9), 0));
  EXPECT_TRUE(sink->status().ok());
  EXPECT_THAT(sink->outputs[0].ids, IsEmpty());
  EXPECT_EQ(sink->outputs[0].finished->reason, FinishReason::kMaxTokens);
  EXPECT_EQ(sink->usage.prompt_tokens, 9);
  EXPECT_EQ(sink->usage.completion_tokens, 0);
  EXPECT_EQ(scheduler_->stats().prompt_tokens, 9);
}

TEST_F(SchedulerTest, ScoresEveryPromptTokenButTheFirst) {
  for (int length : {1, 2, 7, 8, 9, 16, 17, 40}) {
    Start({.max_logits_rows = 5});
    Request request = MakeRequest(Ids(length), 1);
    request.response.prompt_logprobs = 2;
    Sink sink = RunAlone(std::move(request));
    ASSERT_EQ(sink->prompt->tokens.size(), static_cast<size_t>(length));
    EXPECT_FALSE(sink->prompt->tokens[0].logprob.has_value());
    for (int i = 1; i < length; ++i) {
      const std::vector<float> logits = model_->LogitsAfter(Ids(i));
      const auto logprobs = Logprobs::Of(logits);
      const TokenInfo& token = sink->prompt->tokens[i];
      EXPECT_EQ(token.logprob, logprobs->Id(token.id).logprob) << i;
      EXPECT_EQ(token.rank, logprobs->Id(token.id).rank) << i;
      ASSERT_EQ(token.candidates.size(), 2u);
      EXPECT_EQ(token.candidates[0].id, logprobs->Top(1)[0].id) << i;
      EXPECT_EQ(token.candidates[1].rank, 2);
    }
    EXPECT_EQ(sink->outputs[0].ids.size(), 1u);
  }
}

TEST_F(SchedulerTest, TellsTheLogprobsOfTheRawLogits) {
  Request request = MakeRequest(Ids(3), 1);
  request.response.logprobs = 3;
  request.sampling.temperature = 0.5;
  request.sampling.logit_bias[40] = 50;  // wins
  Sink sink = Submit(std::move(request));
  std::string line;
  Run();
  const std::vector<float> logits = model_->LogitsAfter(Ids(3));
  const TokenLogprob expected = Logprobs::Of(logits)->Id(40);
  TokenInfo token;
  token.id = 40;
  token.piece = "(";
  token.logprob = expected.logprob;
  token.rank = expected.rank;
  EXPECT_THAT(sink->outputs[0].lines[0], testing::HasSubstr(Line(token)));
}

TEST_F(SchedulerTest, EmitsEosAsATokenWithoutText) {
  options_.eos_token_ids = {kEos};
  Request request = MakeRequest(Ids(3), 10);
  request.sampling.logit_bias[kEos] = 100;
  request.stopping.min_tokens = 2;
  Sink sink = RunAlone(request);
  // Not before min_tokens; then one token, which counts.
  ASSERT_EQ(sink->outputs[0].ids.size(), 3u);
  EXPECT_EQ(sink->outputs[0].ids[2], kEos);
  EXPECT_NE(sink->outputs[0].ids[1], kEos);
  EXPECT_EQ(sink->outputs[0].finished->reason, FinishReason::kEos);
  EXPECT_EQ(sink->outputs[0].finished->stop_token_id, kEos);
  EXPECT_EQ(sink->usage.completion_tokens, 3);
  EXPECT_THAT(sink->outputs[0].lines[2], testing::HasSubstr("text ''"));

  request.stopping.ignore_eos = true;
  sink = RunAlone(request);
  EXPECT_EQ(sink->outputs[0].ids, std::vector<int32_t>(10, kEos));
  EXPECT_EQ(sink->outputs[0].finished->reason, FinishReason::kMaxTokens);
}

TEST_F(SchedulerTest, StopsAtAStopTokenAndKeepsItsTextOnlyIfAsked) {
  Request request = MakeRequest(Ids(3), 10);
  request.sampling.logit_bias['x'] = 100;
  request.stopping.stop_token_ids = {'x'};
  Sink sink = RunAlone(request);
  EXPECT_THAT(sink->outputs[0].ids, ElementsAre('x'));
  EXPECT_EQ(sink->outputs[0].text, "");
  EXPECT_EQ(sink->outputs[0].finished->reason, FinishReason::kStopToken);
  EXPECT_EQ(sink->outputs[0].finished->stop_token_id, 'x');
  request.stopping.include_stop = true;
  EXPECT_EQ(RunAlone(request)->outputs[0].text, "x");
}

TEST_F(SchedulerTest, StopsAtAStopStringAcrossTokens) {
  Request request = MakeRequest(Ids(3), 10);
  request.sampling.logit_bias['x'] = 100;
  request.stopping.stop_strings = {"xxx"};
  Sink sink = RunAlone(request);
  EXPECT_EQ(sink->outputs[0].ids.size(), 3u);
  EXPECT_EQ(sink->outputs[0].text, "");
  EXPECT_EQ(sink->outputs[0].finished->reason, FinishReason::kStopString);
  EXPECT_EQ(sink->outputs[0].finished->stop_string, "xxx");
  request.stopping.include_stop = true;
  EXPECT_EQ(RunAlone(request)->outputs[0].text, "xxx");
  request.stopping.min_tokens = 5;  // complete at 3 and 4: passed over
  EXPECT_EQ(RunAlone(request)->outputs[0].ids.size(), 5u);
}

TEST_F(SchedulerTest, GivesBackTextThatWasHeldForAStopStringThatNeverCame) {
  Request request = MakeRequest(Ids(3), 2);
  request.sampling.logit_bias['x'] = 100;
  request.stopping.stop_strings = {"xxx"};
  Sink sink = RunAlone(request);
  EXPECT_EQ(sink->outputs[0].finished->text, "xx");
  EXPECT_EQ(sink->outputs[0].finished->text_offset, 0);
}

TEST_F(SchedulerTest, FinishesAtTheModelsMaxLength) {
  options_.max_length = 10;
  Start({});
  Sink sink = RunAlone(MakeRequest(Ids(7), 100));
  EXPECT_EQ(sink->outputs[0].ids.size(), 3u);
  EXPECT_EQ(sink->outputs[0].finished->reason, FinishReason::kMaxLength);
  sink = RunAlone(MakeRequest(Ids(10), 100));
  EXPECT_THAT(sink->outputs[0].ids, IsEmpty());
  EXPECT_EQ(sink->outputs[0].finished->reason, FinishReason::kMaxLength);
}

TEST_F(SchedulerTest, NeverChoosesIdsWithoutAPiece) {
  Request request = MakeRequest(Ids(3), 50);
  model_->bias.assign(260, 0);
  for (int id = 256; id < 260; ++id) model_->bias[id] = 50;
  Sink sink = RunAlone(request);
  for (int32_t id : sink->outputs[0].ids) EXPECT_LT(id, 256);
}

TEST_F(SchedulerTest, ResetsASlotBeforeItsNextRequest) {
  Start({.num_slots = 1});
  Sink first = Submit(MakeRequest(Ids(11), 5));
  Sink second = Submit(MakeRequest(Ids(11), 5));
  Run();
  EXPECT_EQ(first->outputs[0].lines, second->outputs[0].lines);
}

TEST_F(SchedulerTest, WaitsForEnoughSlotsWithoutBeingOvertaken) {
  Sink running = Submit(MakeRequest(Ids(3), 20));
  RunSteps(1);
  Request wide = MakeRequest(Ids(3), 5);
  wide.num_outputs = 4;
  Sink waiting = Submit(wide);
  Sink behind = Submit(MakeRequest(Ids(3), 5));
  RunSteps(10);
  EXPECT_FALSE(waiting->accepted.has_value());
  EXPECT_FALSE(behind->accepted.has_value());
  Run();
  EXPECT_TRUE(running->status().ok());
  EXPECT_EQ(waiting->outputs.size(), 4u);
  EXPECT_TRUE(behind->status().ok());
  EXPECT_EQ(free_slots(), 4);
}

TEST_F(SchedulerTest, RunsThePromptOnceForSeveralOutputs) {
  Request request = MakeRequest(Ids(20), 3);
  request.num_outputs = 4;
  Sink sink = RunAlone(std::move(request));
  EXPECT_EQ(scheduler_->stats().prompt_tokens, 20);
  EXPECT_EQ(model_->num_copies, 3);
  EXPECT_EQ(sink->usage.prompt_tokens, 20);
  EXPECT_EQ(sink->usage.completion_tokens, 12);
}

TEST_F(SchedulerTest, GivesEachOutputsSlotBackWhenThatOutputIsOver) {
  options_.eos_token_ids = {'e'};
  Request request = MakeRequest(Ids(3), 200);
  request.num_outputs = 4;
  Sink sink = Submit(std::move(request));
  model_->bias.assign(260, 0);
  model_->bias['e'] = 2;  // ends them at different times
  while (!sink->done()) {
    scheduler_->RunOnce();
    int finished = 0;
    for (const auto& [index, output] : sink->outputs) {
      finished += output.finished.has_value() ? 1 : 0;
    }
    EXPECT_EQ(free_slots(), finished);
    int rows = 0;
    for (const auto& run : model_->steps.back()) rows += run.slot >= 0;
    EXPECT_LE(rows, 4);
  }
  EXPECT_TRUE(sink->status().ok());
}

TEST_F(SchedulerTest, TellsWhereTheTimeWent) {
  Start({.num_slots = 1});
  model_->before_step = [this] { now_ += std::chrono::seconds(1); };
  Sink first = Submit(MakeRequest(Ids(17), 4));  // 3 steps, then 3 more
  Sink second = Submit(MakeRequest(Ids(1), 1));
  Run();
  EXPECT_EQ(first->timings.queue, std::chrono::seconds(0));
  EXPECT_EQ(first->timings.prompt, std::chrono::seconds(3));
  EXPECT_EQ(first->timings.decode, std::chrono::seconds(3));
  EXPECT_EQ(second->timings.queue, std::chrono::seconds(6));
  EXPECT_EQ(second->timings.prompt, std::chrono::seconds(1));
  EXPECT_EQ(second->timings.decode, std::chrono::seconds(0));
}

TEST_F(SchedulerTest, CountsWhatItDoes) {
  for (int i = 0; i < 6; ++i) Submit(MakeRequest(Ids(4), 3));
  RunSteps(1);
  EXPECT_EQ(scheduler_->stats().running_requests, 4);
  EXPECT_EQ(scheduler_->stats().free_slots, 0);
  EXPECT_EQ(scheduler_->stats().last_step_rows, 16);
  Run();
  const EngineStats& stats = scheduler_->stats();
  EXPECT_EQ(stats.running_requests, 0);
  EXPECT_EQ(stats.free_slots, 4);
  EXPECT_EQ(stats.prompt_tokens, 24);
  EXPECT_EQ(stats.generated_tokens, 18);
  EXPECT_EQ(stats.step_rows, 24 + 12);
  EXPECT_EQ(stats.finished_requests, 6);
  EXPECT_EQ(stats.failed_requests, 0);
}

}  // namespace
}  // namespace flash
