// What a request is told is the same with drafts and without, to the bit,
// whatever is guessed; only fewer steps are needed.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "tests/server/scheduler/scheduler_fixture.h"

namespace flash {
namespace {

using Lines = std::map<int32_t, std::vector<std::string>>;

// Texts of a model that looks back at a few tokens only repeat themselves.
class DraftTest : public SchedulerTest {
 protected:
  static constexpr FakeModel::Sizes kSizes = {
      .chunk_size = 32, .max_rows = 64, .max_logits_rows = 64};

  void Start(int max_drafted, size_t context) {
    options_.max_drafted_tokens = max_drafted;
    SchedulerTest::Start(kSizes);
    model_->context = context;
    if (!bias_.empty()) model_->bias = bias_;
  }

  static Lines LinesOf(const RecordingSink& sink) {
    Lines lines;
    for (const auto& [index, output] : sink.outputs) {
      lines[index] = output.lines;
    }
    return lines;
  }

  // What `request` is told without drafts and, the same, with them. Adds to
  // the two counts.
  Lines RunBothWays(const Request& request, size_t context) {
    Start(0, context);
    const Sink without = RunAlone(request);
    num_steps_without_ += scheduler_->stats().steps;
    for (const int max_drafted : {1, 3, 7, kMaxDraftedTokens}) {
      Start(max_drafted, context);
      const Sink with = RunAlone(request);
      EXPECT_EQ(LinesOf(*with), LinesOf(*without)) << max_drafted << " drafted";
      EXPECT_EQ(with->status(), without->status());
      EXPECT_EQ(with->usage.completion_tokens,
                without->usage.completion_tokens);
      EXPECT_EQ(scheduler_->stats().free_slots, 4);
    }
    num_steps_with_ += scheduler_->stats().steps;
    num_accepted_ += scheduler_->stats().accepted_tokens;
    return LinesOf(*without);
  }

  static Request Greedy(std::vector<int32_t> prompt, int64_t max_tokens) {
    Request request = MakeRequest(std::move(prompt), max_tokens);
    request.sampling.temperature = 0;
    request.sampling.allowed_token_ids = {'a', 'b', 'c', 'd', 'e',
                                          'f', 'g', 'x', 'y'};
    request.response.logprobs = 2;
    return request;
  }

  int max_drafted_in_steps() const {
    int most = 0;
    for (const auto& step : model_->steps) {
      for (const auto& run : step) most = std::max(most, run.num_drafted);
    }
    return most;
  }

  std::vector<float> bias_;
  int64_t num_steps_without_ = 0;
  int64_t num_steps_with_ = 0;
  int64_t num_accepted_ = 0;
};

TEST_F(DraftTest, ChangesNothingButTheNumberOfSteps) {
  for (const size_t context : {0, 1, 2, 3}) {
    for (const int length : {1, 2, 30, 31, 32, 33, 70}) {
      RunBothWays(Greedy(Ids(length), 150), context);
    }
  }
  EXPECT_GT(num_accepted_, 1000);
  EXPECT_LT(num_steps_with_, num_steps_without_ / 2);
}

TEST_F(DraftTest, DrawsSeededTokensAsWithoutDrafts) {
  for (const uint64_t seed : {1, 2, 3, 4, 5, 6}) {
    for (const float temperature : {0.1f, 0.4f, 1.0f}) {
      Request request = Greedy(Ids(20, static_cast<int>(seed)), 200);
      request.sampling.temperature = temperature;
      request.sampling.seed = seed;
      request.sampling.top_k = 3;
      RunBothWays(request, 1);
    }
  }
  EXPECT_GT(num_accepted_, 100);
}

TEST_F(DraftTest, AppliesPenaltiesBiasAndMinTokensTokenByToken) {
  options_.eos_token_ids = {'e'};
  for (const int min_tokens : {0, 7, 40}) {
    Request request = Greedy(Ids(10), 120);
    request.stopping.min_tokens = min_tokens;
    request.sampling.logit_bias['e'] = 3;
    RunBothWays(request, 1);
    request.sampling.logit_bias = {{'x', 2.0f}, {'y', 2.5f}};
    request.sampling.frequency_penalty = 0.1f;
    request.sampling.penalty_window = 12;
    RunBothWays(request, 1);
    request.sampling.repetition_penalty = 1.3f;
    request.sampling.presence_penalty = 0.5f;
    RunBothWays(request, 2);
  }
  EXPECT_GT(num_accepted_, 100);
}

TEST_F(DraftTest, EndsAtMaxTokensHoweverManyAreRight) {
  for (int max_tokens = 0; max_tokens < 40; ++max_tokens) {
    Request request = Greedy(std::vector<int32_t>(9, 'x'), max_tokens);
    request.sampling.logit_bias['x'] = 100;
    const Lines lines = RunBothWays(request, 1);
    EXPECT_EQ(lines.at(0).size(), static_cast<size_t>(max_tokens) + 1);
  }
}

TEST_F(DraftTest, EndsAtTheModelsMaxLength) {
  for (int max_length = 9; max_length < 40; ++max_length) {
    options_.max_length = max_length;
    Request request = Greedy(std::vector<int32_t>(9, 'x'), 1000);
    request.sampling.logit_bias['x'] = 100;
    RunBothWays(request, 1);
    for (const auto& step : model_->steps) {
      for (const auto& run : step) {
        EXPECT_LT(run.position + static_cast<int64_t>(run.tokens.size()),
                  max_length + 1);
      }
    }
  }
}

TEST_F(DraftTest, StopsInTheMiddleOfTokensThatAreRight) {
  // A text of many letters that the prompt has already, beginning and all.
  Request request = Greedy(Ids(20), 70);
  request.sampling.allowed_token_ids.clear();
  for (int32_t id = '!'; id <= '~'; ++id) {
    request.sampling.allowed_token_ids.push_back(id);
  }
  Start(0, 2);
  const std::vector<int32_t> ids = RunAlone(request)->outputs[0].ids;
  const std::vector<int32_t> beginning = request.prompt;
  request.prompt.insert(request.prompt.end(), ids.begin(), ids.end());
  request.prompt.insert(request.prompt.end(), beginning.begin(),
                        beginning.end());
  for (size_t at = 1; at < 60; ++at) {
    for (const size_t length : {1, 2, 5}) {
      if (length > at) continue;
      Request stopped = request;
      stopped.stopping.stop_strings = {
          std::string(ids.begin() + at - length, ids.begin() + at)};
      RunBothWays(stopped, 2);
      stopped.stopping.include_stop = true;
      RunBothWays(stopped, 2);
    }
    Request stopped = request;
    stopped.stopping.stop_token_ids = {ids[at]};
    RunBothWays(stopped, 2);
  }
  EXPECT_GT(num_accepted_, 500);
}

TEST_F(DraftTest, GuessesForEachOutputOfARequestOnItsOwn) {
  for (const size_t context : {1, 2}) {
    Request request = Greedy(Ids(40), 100);
    request.sampling.temperature = 0.3f;
    request.sampling.top_k = 2;
    request.num_outputs = 3;
    RunBothWays(request, context);
  }
  EXPECT_GT(num_accepted_, 100);
}

TEST_F(DraftTest, GoesOnFromPriorIdsAsIfItHadGeneratedThem) {
  const Request request = Greedy(Ids(20), 120);
  Start(0, 2);
  const std::vector<int32_t> ids = RunAlone(request)->outputs[0].ids;
  for (const size_t at : {1, 2, 50, 100, 119}) {
    Request rest = request;
    rest.prior_output_ids = {{ids.begin(), ids.begin() + at}};
    RunBothWays(rest, 2);
  }
  EXPECT_GT(num_accepted_, 100);
}

TEST_F(DraftTest, TellsOthersTheSameBesideThem) {
  for (const int max_drafted : {0, 7}) {
    Start(max_drafted, 1);
    std::vector<Sink> sinks;
    for (int n = 0; n < 12; ++n) {  // never more than 4 at a time
      sinks.push_back(Submit(Greedy(Ids(5 + 7 * n, n), 40 + 9 * n)));
    }
    Run();
    for (int n = 0; n < 12; ++n) {
      Start(0, 1);
      const Sink alone = RunAlone(Greedy(Ids(5 + 7 * n, n), 40 + 9 * n));
      EXPECT_EQ(LinesOf(*sinks[n]), LinesOf(*alone)) << n;
    }
  }
}

TEST_F(DraftTest, IsOffWhileManyOutputsDecode) {
  options_.max_drafted_tokens = 7;
  SchedulerTest::Start({.chunk_size = 32,
                        .num_slots = 5,
                        .max_rows = 64,
                        .max_logits_rows = 64});
  model_->context = 1;
  std::vector<Sink> sinks;
  for (int n = 0; n < 5; ++n) {
    sinks.push_back(Submit(Greedy(Ids(5, n), n == 0 ? 300 : 400)));
  }
  while (!sinks[0]->done()) scheduler_->RunOnce();
  EXPECT_EQ(scheduler_->stats().drafted_tokens, 0);
  Run();
  EXPECT_GT(scheduler_->stats().accepted_tokens, 0);
}

TEST_F(DraftTest, LeavesPromptsTheirShareOfAStep) {
  options_.max_drafted_tokens = kMaxDraftedTokens;
  SchedulerTest::Start(
      {.chunk_size = 32, .num_slots = 4, .max_rows = 12, .max_logits_rows = 9});
  model_->context = 1;
  std::vector<Sink> sinks;
  for (int n = 0; n < 3; ++n) sinks.push_back(Submit(Greedy(Ids(2, n), 500)));
  RunSteps(60);
  const size_t before = model_->steps.size();
  const Sink late = Submit(Greedy(Ids(60, 9), 1));
  while (!late->done()) scheduler_->RunOnce();
  EXPECT_LE(model_->steps.size() - before, 21u);  // 3 rows in each, at least
  Run();
  EXPECT_GT(scheduler_->stats().accepted_tokens, 0);
}

TEST_F(DraftTest, DraftsNoMoreThanTheReaderHasRoomFor) {
  Start(kMaxDraftedTokens, 1);
  Request request = Greedy(Ids(9), 400);
  request.num_outputs = 2;
  const Sink sink = Submit(std::move(request));
  // A reader with an outbox of 6 tokens that reads it when it is full.
  sink->room = 6;
  sink->on_token = [&](size_t) {
    EXPECT_GT(sink->room, 0) << "told more than there was room for";
    --sink->room;
  };
  while (!sink->done()) {
    if (sink->room == 0) sink->room = 6;
    if (sink->room == 1) sink->room = 2;  // one for each output
    scheduler_->RunOnce();
  }
  EXPECT_GT(scheduler_->stats().accepted_tokens, 100);
  EXPECT_LE(max_drafted_in_steps(), 2);
}

TEST_F(DraftTest, LeavesAFullReaderOutOfStepsAndGoesOnWhereItWas) {
  const Request request = Greedy(Ids(9), 300);
  Start(0, 1);
  const Lines expected = LinesOf(*RunAlone(request));
  Start(7, 1);
  const Sink sink = Submit(request);
  while (!sink->done()) {
    RunSteps(5);
    if (sink->done()) break;
    sink->full = true;
    const size_t heard = sink->outputs[0].ids.size();
    RunSteps(3);
    EXPECT_EQ(sink->outputs[0].ids.size(), heard);
    sink->full = false;
  }
  EXPECT_EQ(LinesOf(*sink), expected);
}

TEST_F(DraftTest, GivesTheSlotBackAfterACancelWhileDrafting) {
  for (size_t at = 1; at < 60; at += 7) {
    Start(7, 1);
    const Sink sink = Submit(Greedy(Ids(9), 1000));
    sink->on_token = [&](size_t num_tokens) {
      if (num_tokens == at) sink->cancelled = true;
    };
    Run();
    EXPECT_TRUE(absl::IsCancelled(sink->status()));
    EXPECT_EQ(free_slots(), 4);
    // Whoever comes next finds nothing of it.
    const Request next = Greedy(Ids(30, 2), 100);
    std::vector<Sink> others;
    for (int n = 0; n < 4; ++n) others.push_back(Submit(next));
    Run();
    Start(0, 1);
    const Lines expected = LinesOf(*RunAlone(next));
    for (const Sink& other : others) EXPECT_EQ(LinesOf(*other), expected);
  }
}

TEST_F(DraftTest, ADraftWithANumberThatIsNotFiniteIsNoFaultOfTheRequest) {
  const Request request = Greedy(Ids(9), 200);
  Start(0, 1);
  const Lines expected = LinesOf(*RunAlone(request));
  Start(7, 1);
  int num_faults = 0;
  model_->faults = [&](const FakeModel::RecordedRun& run) {
    const bool faulted = run.num_drafted > 0 && run.position % 3 == 0;
    num_faults += faulted;
    return faulted;
  };
  const Sink sink = RunAlone(request);
  EXPECT_TRUE(sink->status().ok());
  EXPECT_EQ(LinesOf(*sink), expected);
  EXPECT_GT(num_faults, 5);
  // Without drafts it is.
  Start(7, 1);
  model_->faults = [](const FakeModel::RecordedRun& run) {
    return run.position > 60;
  };
  EXPECT_TRUE(absl::IsInternal(RunAlone(request)->status()));
}

TEST_F(DraftTest, FinishesAtItsTimeLimitWithWhatItHas) {
  Start(7, 1);
  model_->before_step = [this] { now_ += std::chrono::seconds(1); };
  Request request = Greedy(Ids(9), 10000);
  request.stopping.time_limit = std::chrono::seconds(50);
  const Sink sink = RunAlone(request);
  EXPECT_TRUE(sink->status().ok());
  EXPECT_EQ(sink->outputs[0].finished->reason, FinishReason::kTimeLimit);
  EXPECT_GT(sink->outputs[0].ids.size(), 100u);
  EXPECT_EQ(free_slots(), 4);
}

TEST_F(DraftTest, CountsDraftedAndAcceptedTokens) {
  Start(7, 1);
  Request request = Greedy(std::vector<int32_t>(9, 'x'), 20);
  request.sampling.logit_bias['x'] = 100;
  RunAlone(request);
  // Each step makes one token more than it had drafts: all are right.
  const EngineStats& stats = scheduler_->stats();
  EXPECT_EQ(stats.generated_tokens, 20);
  EXPECT_EQ(stats.drafted_tokens, stats.accepted_tokens);
  EXPECT_EQ(stats.accepted_tokens, 20 - stats.steps);
  EXPECT_EQ(stats.step_rows, 9 + 19);
}

}  // namespace
}  // namespace flash
