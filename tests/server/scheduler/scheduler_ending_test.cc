// How requests end that do not simply finish: their clients leave, time is up,
// readers are slow, numbers or devices break.

#include "gmock/gmock.h"
#include "tests/server/scheduler/scheduler_fixture.h"

namespace flash {
namespace {

using absl::StatusCode;
using std::chrono::seconds;
using testing::IsEmpty;

class SchedulerEndingTest : public SchedulerTest {
 protected:
  // Cancels a request after `num_turns`, and expects that it leaves at once,
  // with `num_tokens` tokens told.
  void ExpectCancelled(Request request, int num_turns, size_t num_tokens) {
    Sink sink = Submit(std::move(request));
    RunSteps(num_turns);
    EXPECT_FALSE(sink->done());
    const int64_t rows = scheduler_->stats().step_rows;
    sink->cancelled = true;
    EXPECT_TRUE(scheduler_->RunOnce());
    ASSERT_TRUE(sink->done());
    EXPECT_EQ(sink->status().code(), StatusCode::kCancelled);
    EXPECT_EQ(sink->outputs[0].ids.size(), num_tokens);
    EXPECT_FALSE(sink->outputs[0].finished.has_value());
    EXPECT_EQ(free_slots(), model_->num_slots());
    EXPECT_EQ(scheduler_->stats().step_rows, rows);  // not one more row
  }
};

TEST_F(SchedulerEndingTest, GivesTheSlotBackWhenTheClientCancelsInThePrompt) {
  ExpectCancelled(MakeRequest(Ids(40), 5), 2, 0);
}

TEST_F(SchedulerEndingTest, GivesTheSlotBackWhenTheClientCancelsInPriorIds) {
  Request request = MakeRequest(Ids(3), 50);
  request.prior_output_ids = {Ids(30)};
  ExpectCancelled(std::move(request), 3, 0);
}

TEST_F(SchedulerEndingTest, GivesTheSlotBackWhenTheClientCancelsInDecode) {
  ExpectCancelled(MakeRequest(Ids(3), 50), 4, 4);
}

TEST_F(SchedulerEndingTest, GivesAllSlotsBackWhenTheClientOfSeveralCancels) {
  Request request = MakeRequest(Ids(3), 50);
  request.num_outputs = 4;
  ExpectCancelled(std::move(request), 4, 4);
}

TEST_F(SchedulerEndingTest, GivesTheSlotBackWhenABlockedClientCancels) {
  Sink sink = Submit(MakeRequest(Ids(3), 50));
  RunSteps(3);
  sink->full = true;
  EXPECT_FALSE(scheduler_->RunOnce());
  sink->cancelled = true;
  EXPECT_TRUE(scheduler_->RunOnce());
  EXPECT_EQ(sink->status().code(), StatusCode::kCancelled);
  EXPECT_EQ(free_slots(), 4);
}

TEST_F(SchedulerEndingTest, TakesCancelledRequestsOutOfTheQueue) {
  Start({.num_slots = 1});
  Sink running = Submit(MakeRequest(Ids(3), 50));
  Sink first = Submit(MakeRequest(Ids(3), 5));
  Sink second = Submit(MakeRequest(Ids(3), 5));
  RunSteps(2);
  second->cancelled = true;
  RunSteps(1);  // though every slot is busy
  ASSERT_TRUE(second->done());
  EXPECT_EQ(second->status().code(), StatusCode::kCancelled);
  EXPECT_FALSE(second->accepted.has_value());
  EXPECT_FALSE(first->done());
  EXPECT_EQ(queue_->num_requests(), 1);
  Run();
  EXPECT_TRUE(first->status().ok());
}

TEST_F(SchedulerEndingTest, OneClientsCancelLeavesTheOthersAlone) {
  Sink alone = RunAlone(MakeRequest(Ids(9), 20));
  for (int turns = 1; turns < 20; ++turns) {
    Sink stays = Submit(MakeRequest(Ids(9), 20));
    Sink leaves = Submit(MakeRequest(Ids(30, 2), 20));
    RunSteps(turns);
    leaves->cancelled = true;
    Run();
    EXPECT_EQ(stays->outputs[0].lines, alone->outputs[0].lines);
  }
}

TEST_F(SchedulerEndingTest, EndsWithDeadlineExceededInTheQueueAndInDecode) {
  Start({.num_slots = 1});
  Request request = MakeRequest(Ids(3), 50);
  request.deadline = now_ + seconds(5);
  Sink decoding = Submit(request);
  request.deadline = now_ + seconds(3);
  Sink queued = Submit(request);
  RunSteps(2);
  EXPECT_EQ(scheduler_->next_wakeup(), now_ + seconds(3));
  now_ += seconds(3);
  RunSteps(1);
  ASSERT_TRUE(queued->done());
  EXPECT_EQ(queued->status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(queued->accepted.has_value());
  EXPECT_FALSE(decoding->done());
  now_ += seconds(2);
  RunSteps(1);
  ASSERT_TRUE(decoding->done());
  EXPECT_EQ(decoding->status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(decoding->outputs[0].ids.size(), 3u);
  EXPECT_EQ(decoding->usage.completion_tokens, 3);
  EXPECT_EQ(free_slots(), 1);
}

TEST_F(SchedulerEndingTest, FinishesNormallyAtTheTimeLimit) {
  Start({.num_slots = 2});
  Request request = MakeRequest(Ids(3), 50);
  request.num_outputs = 2;
  request.stopping.time_limit = seconds(5);
  Sink running = Submit(request);
  Sink queued = Submit(request);
  RunSteps(3);
  now_ += seconds(5);
  Run();
  EXPECT_TRUE(running->status().ok());
  EXPECT_EQ(running->outputs[1].ids.size(), 3u);
  EXPECT_EQ(running->outputs[1].finished->reason, FinishReason::kTimeLimit);
  EXPECT_EQ(running->usage.completion_tokens, 6);
  EXPECT_TRUE(queued->status().ok());
  EXPECT_TRUE(queued->accepted.has_value());
  EXPECT_THAT(queued->outputs[0].ids, IsEmpty());
  EXPECT_EQ(queued->outputs[0].finished->reason, FinishReason::kTimeLimit);
  EXPECT_EQ(free_slots(), 2);
}

TEST_F(SchedulerEndingTest, FinishesAtTheTimeLimitWithAllPriorIds) {
  constexpr int kMany = 3 * Scheduler::kMaxPriorIds;
  Start({.num_slots = 1});
  Request request = MakeRequest(Ids(3), kMany + 5);
  request.prior_output_ids = {Ids(kMany)};
  request.stopping.time_limit = seconds(5);
  Sink taking = Submit(request);
  std::vector<Sink> queued;
  for (int i = 0; i < 3; ++i) queued.push_back(Submit(request));
  RunSteps(1);
  now_ += seconds(5);
  RunSteps(1);
  EXPECT_FALSE(taking->done());          // its text's end is not known yet
  EXPECT_EQ(queue_->num_requests(), 2);  // one more at a time than has slots
  Run();
  queued.push_back(taking);
  for (const Sink& sink : queued) {
    ASSERT_TRUE(sink->done());
    EXPECT_TRUE(sink->status().ok());
    EXPECT_FALSE(sink->prompt.has_value());
    EXPECT_EQ(sink->outputs[0].finished->reason, FinishReason::kTimeLimit);
    EXPECT_EQ(sink->outputs[0].finished->num_tokens, kMany);
    EXPECT_EQ(sink->outputs[0].finished->text_offset, kMany);
    EXPECT_EQ(sink->usage.prior_tokens, kMany);
  }
  EXPECT_EQ(scheduler_->stats().steps, 0);
  EXPECT_EQ(free_slots(), 1);
}

TEST_F(SchedulerEndingTest, GivesTheSlotBackWhenTheClientCancelsInTaking) {
  Request request = MakeRequest(Ids(3), 50000);
  request.prior_output_ids = {Ids(40000)};
  ExpectCancelled(std::move(request), 3, 0);
  EXPECT_EQ(scheduler_->stats().steps, 0);
}

TEST_F(SchedulerEndingTest, CountsThePromptOfWhatFailsInTheQueue) {
  Start({.num_slots = 1});
  Sink running = Submit(MakeRequest(Ids(3), 50));
  Request request = MakeRequest(Ids(7), 50);
  request.prior_output_ids = {Ids(5)};
  Sink queued = Submit(request);
  RunSteps(1);
  now_ += seconds(2);
  queued->cancelled = true;
  RunSteps(1);
  ASSERT_TRUE(queued->done());
  EXPECT_EQ(queued->usage.prompt_tokens, 7);
  EXPECT_EQ(queued->usage.longest_tokens, 7);
  EXPECT_EQ(queued->usage.completion_tokens, 0);
  EXPECT_EQ(queued->timings.queue, seconds(2));
  EXPECT_EQ(scheduler_->stats().failed_requests, 1);
}

TEST_F(SchedulerEndingTest, TakesAnEndlessTimeLimit) {
  Request request = MakeRequest(Ids(3), 2);
  request.stopping.time_limit = Clock::duration::max();
  request.deadline = Clock::time_point::max();
  EXPECT_TRUE(RunAlone(std::move(request))->status().ok());
}

TEST_F(SchedulerEndingTest, LeavesABlockedReaderOutAndHoldsUpNobody) {
  Sink slow = Submit(MakeRequest(Ids(3), 20));
  Sink fast = Submit(MakeRequest(Ids(4), 20));
  RunSteps(3);
  slow->full = true;
  RunSteps(10);
  EXPECT_EQ(slow->outputs[0].ids.size(), 3u);
  EXPECT_EQ(fast->outputs[0].ids.size(), 13u);
  EXPECT_EQ(scheduler_->stats().blocked_requests, 1);
  slow->full = false;
  Run();
  Sink alone = RunAlone(MakeRequest(Ids(3), 20));
  EXPECT_EQ(slow->outputs[0].lines, alone->outputs[0].lines);
}

TEST_F(SchedulerEndingTest, RunsThePromptOfABlockedReaderButMakesNoToken) {
  Sink sink = std::make_shared<RecordingSink>();
  sink->full = true;
  Request request = MakeRequest(Ids(20), 5);
  Submit(request, sink);
  Run();
  EXPECT_EQ(scheduler_->stats().prompt_tokens, 19);  // all but the last
  EXPECT_TRUE(sink->outputs.empty());
  sink->full = false;
  Run();
  EXPECT_EQ(sink->outputs[0].lines, RunAlone(request)->outputs[0].lines);
}

TEST_F(SchedulerEndingTest, EndsAReaderThatIsBlockedForTooLong) {
  options_.slow_reader_timeout = seconds(10);
  Sink sink = Submit(MakeRequest(Ids(3), 50));
  RunSteps(2);
  sink->full = true;
  RunSteps(1);
  EXPECT_EQ(scheduler_->next_wakeup(), now_ + seconds(10));
  now_ += seconds(9);
  RunSteps(1);
  sink->full = false;  // the time starts anew
  RunSteps(1);
  sink->full = true;
  RunSteps(1);
  now_ += seconds(9);
  RunSteps(1);
  EXPECT_FALSE(sink->done());
  now_ += seconds(1);
  RunSteps(1);
  ASSERT_TRUE(sink->done());
  EXPECT_EQ(sink->status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(free_slots(), 4);
}

TEST_F(SchedulerEndingTest, EndsAFaultedRequestAlone) {
  Sink alone = RunAlone(MakeRequest(Ids(9), 20));
  for (int64_t at : {0, 8, 9, 15}) {  // prompt and decode
    Sink good = Submit(MakeRequest(Ids(9), 20));
    Sink bad = Submit(MakeRequest(Ids(10, 2), 20));
    int bad_slot = -1;
    model_->faults = [&](const FakeModel::RecordedRun& run) {
      if (run.position == 0 && run.tokens[0] == Ids(10, 2)[0]) {
        bad_slot = run.slot;
      }
      return run.slot == bad_slot && run.position >= at;
    };
    Run();
    model_->faults = nullptr;
    EXPECT_EQ(bad->status().code(), StatusCode::kInternal) << at;
    EXPECT_TRUE(good->status().ok());
    EXPECT_EQ(good->outputs[0].lines, alone->outputs[0].lines);
    EXPECT_EQ(free_slots(), 4);
  }
}

TEST_F(SchedulerEndingTest, EndsARequestWhoseLogitsAreNotFinite) {
  model_->bias.assign(260, 0);
  model_->bias[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(RunAlone(MakeRequest(Ids(3), 5))->status().code(),
            StatusCode::kInternal);
  Request scored = MakeRequest(Ids(3), 0);
  scored.response.prompt_logprobs = 0;
  EXPECT_EQ(RunAlone(scored)->status().code(), StatusCode::kInternal);
  EXPECT_EQ(free_slots(), 4);
}

TEST_F(SchedulerEndingTest, EndsARequestThatAllowsNoToken) {
  options_.eos_token_ids = {'e'};
  Request request = MakeRequest(Ids(3), 5);
  request.sampling.allowed_token_ids = {'e'};
  request.stopping.min_tokens = 1;
  EXPECT_EQ(RunAlone(request)->status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(free_slots(), 4);
}

TEST_F(SchedulerEndingTest, EndsEverythingWhenTheDeviceFails) {
  Start({.num_slots = 2});
  std::vector<Sink> sinks;
  for (int i = 0; i < 3; ++i) sinks.push_back(Submit(MakeRequest(Ids(3), 50)));
  model_->fail_at_step = 3;
  Run();
  EXPECT_FALSE(scheduler_->device_status().ok());
  EXPECT_EQ(sinks[0]->status().code(), StatusCode::kInternal);
  EXPECT_EQ(sinks[1]->status().code(), StatusCode::kInternal);
  EXPECT_EQ(sinks[2]->status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(sinks[0]->outputs[0].ids.size(), 3u);
  auto late = std::make_unique<Request>(MakeRequest(Ids(3), 50));
  EXPECT_EQ(queue_->Push(late, now_).code(), StatusCode::kUnavailable);
  EXPECT_FALSE(scheduler_->RunOnce());
  EXPECT_TRUE(scheduler_->idle());
}

TEST_F(SchedulerEndingTest, SurvivesACancelAtEveryToken) {
  for (size_t cancel_at = 1; cancel_at <= 12; ++cancel_at) {
    Sink sink = std::make_shared<RecordingSink>();
    RecordingSink* const raw = sink.get();
    sink->on_token = [raw, cancel_at](size_t n) {
      if (n == cancel_at) raw->cancelled = true;
    };
    Request request = MakeRequest(Ids(9), 12);
    request.num_outputs = 3;
    request.response.logprobs = 2;
    Submit(std::move(request), sink);
    Run();
    EXPECT_TRUE(sink->done());
    EXPECT_EQ(free_slots(), 4);
  }
}

}  // namespace
}  // namespace flash
