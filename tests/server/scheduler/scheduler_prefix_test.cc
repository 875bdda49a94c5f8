// States at chunk boundaries: what is at hand of a prompt is not run again and
// changes nothing that is told; checkpoints say how far an output is.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "server/scheduler/prefix_keys.h"
#include "tests/server/scheduler/fake_prefix_states.h"
#include "tests/server/scheduler/scheduler_fixture.h"

namespace flash {
namespace {

using State = std::shared_ptr<const std::string>;

class FakeCheckpoints final : public Checkpoints {
 public:
  State Put(const Request& request, const PrefixKey& key, int64_t position,
            State state) override {
    EXPECT_EQ(request.id, "long");
    last_key = key;
    positions.push_back(position);
    return std::exchange(last_state, std::move(state));
  }
  void Drop(const Request&) override { ++num_dropped; }

  PrefixKey last_key = {};
  State last_state;
  std::vector<int64_t> positions;
  int num_dropped = 0;
};

class SchedulerPrefixTest : public SchedulerTest {
 protected:
  void SetUp() override {
    options_.prefix_states = &states_;
    options_.eos_token_ids = {'e'};
    Start({});
  }

  Sink Submit(Request request) {
    auto sink = std::make_shared<RecordingSink>();
    request.sink = sink;
    std::vector<PrefixKey> keys =
        PrefixKeysOf(states_, request, model_->chunk_size());
    auto owned = std::make_unique<Request>(std::move(request));
    EXPECT_TRUE(queue_->Push(owned, now_, std::move(keys)).ok());
    return sink;
  }
  Sink RunAlone(Request request) {
    const int64_t before = scheduler_->stats().prompt_tokens;
    Sink sink = Submit(std::move(request));
    Run();
    EXPECT_TRUE(sink->done() && sink->status().ok()) << sink->status();
    num_run_ = scheduler_->stats().prompt_tokens - before;
    EXPECT_EQ(free_slots(), 4);
    return sink;
  }

  static Request Long(int length, int64_t max_tokens) {
    Request request = MakeRequest(Ids(length), max_tokens);
    request.id = "long";
    request.stopping.ignore_eos = true;
    request.sampling.repetition_penalty = 1.2;
    request.response.logprobs = 1;
    return request;
  }

  FakePrefixStates states_;
  FakeCheckpoints checkpoints_;
  int64_t num_run_ = 0;  // ids of prompts, of the last request
};

TEST_F(SchedulerPrefixTest, TellsTheSameAfterAHitAtEveryBoundary) {
  for (int length : {8, 9, 40, 41, 47}) {
    states_.states.clear();
    for (int num_outputs : {1, 3}) {
      Request request = Long(length, 7);
      request.num_outputs = num_outputs;
      request.response.echo = true;
      states_.most_chunks = 0;
      Sink cold = RunAlone(request);
      EXPECT_EQ(num_run_, length);
      EXPECT_EQ(states_.states.size(), static_cast<size_t>(length / 8));
      for (int chunks = 0; chunks <= length / 8; ++chunks) {
        states_.most_chunks = chunks;
        Sink warm = RunAlone(request);
        const int cached = std::min(chunks, (length - 1) / 8) * 8;
        EXPECT_EQ(num_run_, length - cached);
        EXPECT_EQ(warm->accepted->cached_prompt_tokens, cached);
        EXPECT_EQ(warm->usage.cached_prompt_tokens, cached);
        EXPECT_EQ(warm->prompt->text, cold->prompt->text);
        for (int index = 0; index < num_outputs; ++index) {
          EXPECT_EQ(warm->outputs[index].lines, cold->outputs[index].lines);
        }
      }
    }
  }
}

TEST_F(SchedulerPrefixTest, RunsThePromptIfItsLogprobsAreWanted) {
  Request request = Long(20, 3);
  RunAlone(request);
  request.response.prompt_logprobs = 0;
  Sink sink = RunAlone(request);
  EXPECT_EQ(num_run_, 20);
  EXPECT_EQ(sink->accepted->cached_prompt_tokens, 0);
  EXPECT_TRUE(sink->prompt->tokens[19].logprob.has_value());
}

TEST_F(SchedulerPrefixTest, KeepsOwnersApart) {
  Request request = Long(20, 3);
  RunAlone(request);
  request.owner = "another";
  RunAlone(request);
  EXPECT_EQ(num_run_, 20);
  RunAlone(request);
  EXPECT_EQ(num_run_, 4);
}

TEST_F(SchedulerPrefixTest, BeginsWithinPriorIds) {
  Request request = Long(11, 30);
  Sink whole = RunAlone(request);
  const std::vector<int32_t>& ids = whole->outputs[0].ids;
  for (int num_prior = 0; num_prior < 30; ++num_prior) {
    request.prior_output_ids = {{ids.begin(), ids.begin() + num_prior}};
    for (int cold : {1, 0}) {
      if (cold) states_.states.clear();
      Sink rest = RunAlone(request);
      const int num_ids = 11 + num_prior;
      const int cached = cold ? 0 : (num_ids - 1) / 8 * 8;
      EXPECT_EQ(num_run_, num_ids - cached);
      EXPECT_EQ(rest->accepted->cached_prompt_tokens, std::min(cached, 11));
      EXPECT_EQ(
          rest->outputs[0].lines,
          std::vector<std::string>(whole->outputs[0].lines.begin() + num_prior,
                                   whole->outputs[0].lines.end()));
    }
  }
}

TEST_F(SchedulerPrefixTest, DoesNotBeginAfterTheEndOfPriorIds) {
  Request longer = Long(40, 1);
  longer.prompt[20] = 'e';
  RunAlone(longer);
  Request request = Long(11, 30);
  request.stopping.ignore_eos = false;
  request.prompt.assign(longer.prompt.begin(), longer.prompt.begin() + 11);
  request.prior_output_ids = {
      {longer.prompt.begin() + 11, longer.prompt.begin() + 40}};
  for (bool save : {false, true}) {
    request.save = save;
    Sink sink = RunAlone(request);
    EXPECT_EQ(sink->outputs[0].finished->reason, FinishReason::kEos);
    EXPECT_EQ(sink->outputs[0].finished->num_tokens, 10);
    if (save) {
      EXPECT_EQ(sink->outputs[0].finished->snapshot->num_tokens(), 20);
    }
  }
}

TEST_F(SchedulerPrefixTest, SavesThePromptAloneFromWhatIsAtHand) {
  Request request = Long(17, 0);
  request.save = true;
  for (int64_t num_run : {16, 0}) {
    Sink sink = RunAlone(request);
    EXPECT_EQ(num_run_, num_run);
    EXPECT_EQ(sink->outputs[0].finished->snapshot->position, 16);
    EXPECT_EQ(sink->outputs[0].finished->snapshot->pending.size(), 1u);
  }
}

TEST_F(SchedulerPrefixTest, BeginsAnewIfAStateCannotBeLoaded) {
  Request request = Long(20, 5);
  Sink cold = RunAlone(request);
  for (auto& [key, state] : states_.states) {
    state = std::make_shared<std::string>("x");
  }
  Sink again = RunAlone(request);
  EXPECT_EQ(num_run_, 20);
  EXPECT_EQ(again->outputs[0].lines, cold->outputs[0].lines);
  EXPECT_EQ(again->usage.cached_prompt_tokens, 0);
}

TEST_F(SchedulerPrefixTest, CutsStopTextOffAfterAHit) {
  model_->bias.assign(260, -20);
  for (int id : {'a', 'b', 'c'}) model_->bias[id] = 0;
  Request request = Long(24, 40);
  request.save = true;
  request.stopping.stop_strings = {"abc", "cba", "bbbb"};
  int num_ended = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    states_.states.clear();
    request.sampling.seed = seed;
    Sink cold = RunAlone(request);
    Sink warm = RunAlone(request);
    EXPECT_EQ(num_run_, 8);
    EXPECT_EQ(warm->outputs[0].lines, cold->outputs[0].lines);
    EXPECT_EQ(warm->outputs[0].finished->snapshot->recent,
              cold->outputs[0].finished->snapshot->recent);
    if (warm->outputs[0].finished->snapshot->ended) ++num_ended;
    EXPECT_LE(warm->outputs[0].finished->snapshot->pending.size(), 16u);
  }
  EXPECT_GT(num_ended, 10);
}

TEST_F(SchedulerPrefixTest, LeavesCheckpointsThatAnotherServerFinds) {
  options_.checkpoints = &checkpoints_;
  options_.checkpoint_every_tokens = 10;
  Start({});
  Request request = Long(11, 40);
  Sink whole = RunAlone(request);
  EXPECT_THAT(checkpoints_.positions, testing::ElementsAre(16, 32, 48));
  EXPECT_EQ(checkpoints_.num_dropped, 1);

  for (size_t num_prior : {5, 6, 21, 22, 39}) {
    checkpoints_ = {};
    Start({});
    Sink cut = Submit(request);
    while (cut->outputs[0].ids.size() < num_prior) RunSteps(1);
    cut->cancelled = true;
    Run();
    EXPECT_EQ(checkpoints_.num_dropped, 0);
    // What a server does that knows nothing but the store.
    states_.states.clear();
    if (checkpoints_.last_state != nullptr) {
      states_.states[checkpoints_.last_key] = checkpoints_.last_state;
    }
    const int64_t cached =
        checkpoints_.positions.empty() ? 0 : checkpoints_.positions.back();
    Start({});
    Request rest = request;
    rest.prior_output_ids = {cut->outputs[0].ids};
    Sink resumed = RunAlone(rest);
    EXPECT_EQ(num_run_, 11 + static_cast<int64_t>(num_prior) - cached);
    EXPECT_EQ(
        resumed->outputs[0].lines,
        std::vector<std::string>(whole->outputs[0].lines.begin() + num_prior,
                                 whole->outputs[0].lines.end()));
    EXPECT_EQ(checkpoints_.num_dropped, 1);
  }
}

TEST_F(SchedulerPrefixTest,
       LeavesNoCheckpointOfATextThatIsCutBackOverABoundary) {
  options_.checkpoints = &checkpoints_;
  options_.checkpoint_every_tokens = 1;
  Start({});
  Request plain = Long(11, 40);
  for (int32_t id = 'a'; id <= 'z'; ++id) {
    plain.sampling.allowed_token_ids.push_back(id);
  }
  const std::string text = RunAlone(plain)->outputs[0].text;
  // Wherever the stop string ends, also with the first token after a boundary.
  for (size_t end = 4; end < text.size(); ++end) {
    checkpoints_ = {};
    Request request = plain;
    request.save = true;
    request.stopping.stop_strings = {text.substr(end - 4, 4)};
    const Sink sink = RunAlone(std::move(request));
    const int64_t kept = sink->outputs[0].finished->snapshot->num_tokens();
    for (const int64_t position : checkpoints_.positions) {
      EXPECT_LE(position, std::max<int64_t>(kept + 4, 11)) << end;
    }
  }
}

TEST_F(SchedulerPrefixTest, LeavesNoCheckpointsOfOtherRequests) {
  options_.checkpoints = &checkpoints_;
  options_.checkpoint_every_tokens = 10;
  Start({});
  Request several = Long(20, 20);
  several.num_outputs = 2;
  RunAlone(several);
  Request nameless = Long(20, 20);
  nameless.id.clear();
  RunAlone(nameless);
  EXPECT_TRUE(checkpoints_.positions.empty());
  EXPECT_EQ(checkpoints_.num_dropped, 0);
}

}  // namespace
}  // namespace flash
