// What a request is told depends on the request alone: not on who else is
// there, on how its rows were batched, or on which server made its first
// tokens. Compared are all events, to the bit.

#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "server/model/sampling.h"
#include "tests/server/scheduler/text_fixture.h"

namespace flash {
namespace {

using Lines = std::vector<std::string>;

class SchedulerContinuationTest : public TextSchedulerTest {
 protected:
  // Runs `request`, and then again from every token on, on another scheduler.
  void ExpectTheSameFromEveryToken(const Request& request) {
    Sink whole = RunAlone(request);
    ASSERT_TRUE(whole->status().ok());
    size_t most = 0;
    for (const auto& [index, output] : whole->outputs) {
      most = std::max(most, output.ids.size());
    }
    for (size_t cut = 0; cut <= most; ++cut) {
      Request rest = request;
      Lines expected;
      int64_t num_prior = 0;
      for (const auto& [index, output] : whole->outputs) {
        // Those of several outputs are cut in different places.
        const size_t prior = std::min(output.ids.size(), cut + 2 * index);
        rest.prior_output_ids.emplace_back(output.ids.begin(),
                                           output.ids.begin() + prior);
        expected.insert(expected.end(), output.lines.begin() + prior,
                        output.lines.end());
        num_prior += static_cast<int64_t>(prior);
      }
      Sink continued = RunAlone(rest);
      Lines lines;
      for (const auto& [index, output] : continued->outputs) {
        lines.insert(lines.end(), output.lines.begin(), output.lines.end());
      }
      EXPECT_EQ(lines, expected) << "from token " << cut;
      EXPECT_EQ(continued->usage.completion_tokens,
                whole->usage.completion_tokens);
      EXPECT_EQ(continued->usage.prior_tokens, num_prior);
      EXPECT_EQ(free_slots(), model_->num_slots());
    }
  }

  // By definition: each token from the logits after all those before it.
  std::vector<int32_t> ExpectedIds(const Request& request, uint32_t output) {
    std::vector<int32_t> all = request.prompt;
    TokenHistory history(request.sampling.penalty_window);
    history.AppendPrompt(request.prompt);
    for (int64_t i = 0; i < request.stopping.max_tokens; ++i) {
      all.push_back(SampledId(request, output, all, history));
      history.AppendOutput(all.back());
    }
    return {all.begin() + request.prompt.size(), all.end()};
  }

  // What comes after `all`: prompt and output so far.
  int32_t SampledId(const Request& request, uint32_t output,
                    const std::vector<int32_t>& all,
                    const TokenHistory& history) {
    SamplingScratch scratch(model_->vocab_size());
    const std::vector<float> logits = model_->LogitsAfter(all);
    const auto id = SampleToken({.logits = logits,
                                 .options = request.sampling,
                                 .history = history,
                                 .forbidden = {},
                                 .num_pieces = tokenizer_.num_pieces(),
                                 .draw = {.seed = request.sampling.seed,
                                          .output_index = output,
                                          .position = all.size()}},
                                scratch);
    return *id;
  }
};

TEST_F(SchedulerContinuationTest, GoesOnFromEveryTokenAsIfItHadMadeThem) {
  std::map<FinishReason, int> reasons;
  for (uint64_t seed = 0; seed < 25; ++seed) {
    const Request request = Everything(30, seed);
    ExpectTheSameFromEveryToken(request);
    ++reasons[RunAlone(request)->outputs[0].finished->reason];
  }
  // The seeds are many enough to see each way to end.
  EXPECT_GT(reasons[FinishReason::kEos], 0);
  EXPECT_GT(reasons[FinishReason::kStopString], 0);
  EXPECT_GT(reasons[FinishReason::kMaxTokens], 0);
}

TEST_F(SchedulerContinuationTest, GoesOnWithTheStopsTextKept) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    Request request = Everything(30, seed);
    request.stopping.include_stop = true;
    request.stopping.stop_token_ids = {'a'};
    ExpectTheSameFromEveryToken(request);
  }
}

TEST_F(SchedulerContinuationTest, GoesOnWithSeveralOutputs) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    Request request = Everything(20, seed);
    request.num_outputs = 3;
    ExpectTheSameFromEveryToken(request);
  }
}

TEST_F(SchedulerContinuationTest, GoesOnAtTheEdgesOfChunks) {
  for (int length : {1, 7, 8, 9, 16, 17}) {
    Request request = Everything(18, 5);
    request.prompt = Ids(length);
    ExpectTheSameFromEveryToken(request);
  }
}

TEST_F(SchedulerContinuationTest, GoesOnUpToTheModelsMaxLength) {
  options_.max_length = 30;
  Begin({});
  Request request = Everything(100, 5);
  request.stopping.ignore_eos = true;
  request.stopping.stop_strings.clear();
  EXPECT_EQ(RunAlone(request)->outputs[0].finished->reason,
            FinishReason::kMaxLength);
  ExpectTheSameFromEveryToken(request);
}

TEST_F(SchedulerContinuationTest, IgnoresPriorIdsAfterTheEnd) {
  Request request = Everything(30, 1);
  request.stopping.min_tokens = 0;
  request.prior_output_ids = {{'a', 'e', 'a', 'b'}};
  Sink sink = RunAlone(request);
  EXPECT_EQ(sink->outputs[0].finished->reason, FinishReason::kEos);
  EXPECT_EQ(sink->outputs[0].finished->num_tokens, 2);
  EXPECT_EQ(sink->usage.prior_tokens, 2);
}

TEST_F(SchedulerContinuationTest, RunsNoPriorIdsOfAnOutputThatTheyEnd) {
  Request request = Everything(30000, 1);
  request.stopping.stop_strings = {"xyz"};
  request.prior_output_ids = {std::vector<int32_t>(20000, 'a')};
  std::vector<int32_t>& prior = request.prior_output_ids[0];
  prior[9000] = 'x';
  prior[9001] = 'y';
  prior[9002] = 'z';
  Sink sink = RunAlone(request);
  EXPECT_EQ(sink->outputs[0].finished->reason, FinishReason::kStopString);
  EXPECT_EQ(sink->outputs[0].finished->num_tokens, 9003);
  EXPECT_EQ(sink->outputs[0].finished->text_offset, 9000);
  EXPECT_EQ(sink->usage.prior_tokens, 9003);
  EXPECT_EQ(scheduler_->stats().prompt_tokens, 11);
}

TEST_F(SchedulerContinuationTest, GoesOnFromListsOfManyPortions) {
  const int64_t portion = Scheduler::kMaxPriorIds;
  for (int64_t length : {portion - 1, portion, portion + 1, 2 * portion}) {
    Begin({.chunk_size = 512, .max_rows = 1024});
    Request request = Everything(length + 1, 5);
    request.stopping.min_tokens = length + 1;  // nothing else ends it
    const std::vector<int32_t> prior = Ids(static_cast<int>(length));
    std::vector<int32_t> all = request.prompt;
    all.insert(all.end(), prior.begin(), prior.end());
    TokenHistory history(request.sampling.penalty_window);
    history.AppendPrompt(request.prompt);
    for (int32_t id : prior) history.AppendOutput(id);
    request.prior_output_ids = {prior};
    Sink sink = RunAlone(request);
    EXPECT_THAT(sink->outputs[0].ids,
                testing::ElementsAre(SampledId(request, 0, all, history)));
    EXPECT_EQ(sink->outputs[0].finished->num_tokens, length + 1);
    EXPECT_EQ(sink->usage.prior_tokens, length);
  }
}

TEST_F(SchedulerContinuationTest, TakesPriorIdsInPortionsBetweenSteps) {
  constexpr int kMany = 1000000;
  CountingTokenizer tokenizer;
  Begin({.chunk_size = 512, .max_rows = 1024});
  scheduler_ = std::make_unique<Scheduler>(options_, model_.get(), &tokenizer,
                                           parallel_for_, queue_.get());
  Request endless = MakeRequest(Ids(3), kMany);
  endless.stopping.ignore_eos = true;
  Sink decoder = Submit(endless);
  RunSteps(1);
  Request request = MakeRequest(Ids(3), kMany + 5);
  request.stopping.ignore_eos = true;
  request.prior_output_ids = {Ids(kMany)};
  Sink sink = Submit(request);
  int64_t most_asked = 0;
  size_t num_rounds = 0;
  while (!sink->done()) {
    const int64_t before = tokenizer.num_asked();
    ASSERT_TRUE(scheduler_->RunOnce());
    ++num_rounds;
    most_asked = std::max(most_asked, tokenizer.num_asked() - before);
    ASSERT_EQ(decoder->outputs[0].ids.size(), 1 + num_rounds);
  }
  EXPECT_EQ(sink->usage.prior_tokens, kMany);
  EXPECT_EQ(sink->outputs[0].ids.size(), 5u);
  EXPECT_EQ(sink->outputs[0].finished->num_tokens, kMany + 5);
  // Beside the portion only the tokens of two outputs, and a prompt's first.
  EXPECT_LE(most_asked, Scheduler::kMaxPriorIds + 8);
}

TEST_F(SchedulerContinuationTest, SharesAPortionOfPriorIdsAmongRequests) {
  CountingTokenizer tokenizer;
  Begin({.chunk_size = 512, .max_rows = 1024});
  scheduler_ = std::make_unique<Scheduler>(options_, model_.get(), &tokenizer,
                                           parallel_for_, queue_.get());
  std::vector<Sink> sinks;
  for (int length : {400000, 300000, 200, 1000}) {
    Request request = MakeRequest(Ids(3), length + 1);
    request.stopping.ignore_eos = true;
    request.prior_output_ids = {Ids(length)};
    sinks.push_back(Submit(request));
  }
  RunSteps(1);
  EXPECT_LE(tokenizer.num_asked(), Scheduler::kMaxPriorIds + 8);
  RunSteps(9);  // the short ones do not wait for the long ones
  EXPECT_TRUE(sinks[2]->done());
  EXPECT_TRUE(sinks[3]->done());
  EXPECT_FALSE(sinks[0]->done());
  EXPECT_LE(tokenizer.num_asked(), 10 * Scheduler::kMaxPriorIds + 16);
  for (const Sink& sink : sinks) sink->cancelled = true;
  Run();
}

TEST_F(SchedulerContinuationTest, DrawsEveryOutputWithItsOwnNumbers) {
  Request request = MakeRequest(Ids(11), 12);
  request.stopping.ignore_eos = true;
  request.sampling.frequency_penalty = 0.5;
  request.num_outputs = 4;
  Sink several = RunAlone(request);
  for (int output = 0; output < 4; ++output) {
    EXPECT_EQ(several->outputs[output].ids, ExpectedIds(request, output));
  }
  EXPECT_NE(several->outputs[0].ids, several->outputs[1].ids);
  request.num_outputs = 1;
  EXPECT_EQ(RunAlone(request)->outputs[0].lines, several->outputs[0].lines);
}

TEST_F(SchedulerContinuationTest, IsTheSameAloneAndInACrowd) {
  const int num_requests = 30;
  std::vector<Request> requests;
  std::vector<std::map<int32_t, RecordingSink::Output>> alone;
  for (int i = 0; i < num_requests; ++i) {
    Request request = Everything(1 + i % 23, i);
    request.prompt = Ids(1 + (i * 5) % 37, i);
    request.num_outputs = 1 + i % 3;
    if (i % 4 == 0) request.response.prompt_logprobs = 1;
    if (i % 5 == 0) request.sampling.temperature = 0;
    alone.push_back(RunAlone(request)->outputs);
    requests.push_back(std::move(request));
  }
  for (const FakeModel::Sizes& sizes :
       {FakeModel::Sizes{}, FakeModel::Sizes{.num_slots = 7, .max_rows = 5},
        FakeModel::Sizes{.num_slots = 12, .max_logits_rows = 3},
        FakeModel::Sizes{.chunk_size = 3, .num_slots = 20, .max_rows = 64}}) {
    Begin(sizes);
    std::vector<Sink> sinks;
    for (int i = 0; i < num_requests; ++i) {
      sinks.push_back(Submit(requests[i]));
      RunSteps(i % 3);
    }
    Run();
    for (int i = 0; i < num_requests; ++i) {
      ASSERT_EQ(sinks[i]->outputs.size(), alone[i].size());
      for (const auto& [index, output] : alone[i]) {
        EXPECT_EQ(sinks[i]->outputs[index].lines, output.lines) << i;
      }
    }
  }
}

TEST_F(SchedulerContinuationTest, IsTheSameWithSeveralSamplers) {
  Request request = Everything(30, 3);
  request.num_outputs = 4;
  request.response.prompt_logprobs = 3;
  Sink one = RunAlone(request);
  options_.num_samplers = 3;
  parallel_for_ = [](int n, const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    for (int i = 0; i < n; ++i) threads.emplace_back(body, i);
    for (std::thread& thread : threads) thread.join();
  };
  Begin({});
  Sink three = RunAlone(request);
  for (int output = 0; output < 4; ++output) {
    EXPECT_EQ(three->outputs[output].lines, one->outputs[output].lines);
  }
  ASSERT_EQ(three->prompt->tokens.size(), one->prompt->tokens.size());
  for (size_t i = 0; i < one->prompt->tokens.size(); ++i) {
    EXPECT_EQ(Line(three->prompt->tokens[i]), Line(one->prompt->tokens[i]));
  }
}

}  // namespace
}  // namespace flash
