// Whatever happens to a text between its tokens, they are the ones of a text to
// which nothing happens: it is saved, of a request that has finished or that
// runs, goes through bytes, is gone on with in another slot of another server,
// is resumed from its ids, begins with a cached state, has forks. Random
// histories of that kind, on small random models; bits are compared.

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/scheduler/prefix_keys.h"
#include "server/scheduler/scheduler.h"
#include "server/sessions/snapshot_codec.h"
#include "server/tokenizer/byte_tokenizer.h"
#include "tests/server/model/model_runner.h"
#include "tests/server/scheduler/fake_prefix_states.h"
#include "tests/server/scheduler/recording_sink.h"

namespace flash {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kHistories = 50;  // these are slow
#else
constexpr int kHistories = 400;
#endif

using SnapshotPtr = std::shared_ptr<const Snapshot>;
using Sink = std::shared_ptr<RecordingSink>;

struct Numerics {
  DataType weights;
  DataType cache;
  bool token_shift;
  int model;  // which of those that are so
};

// What tests can be had of at this size: a few letters, an end, and bytes of
// characters of two and three bytes.
const std::vector<int32_t> kAlphabet = {' ',  'a',  'b',  'c',  'e',
                                        0x82, 0xA9, 0xAC, 0xC3, 0xE2};
constexpr int32_t kEos = 'e';

ModelConfig SmallModel(bool token_shift, int model) {
  for (uint64_t seed = 1;; ++seed) {
    ModelConfig config = RandomConfig(seed);
    if (config.chunk_size < 5 || config.chunk_size > 17 ||
        config.num_layers < 2 || !config.linear.has_value() ||
        config.token_shift != token_shift ||
        config.tokenizer.type != TokenizerConfig::Type::kBytes) {
      continue;
    }
    if (model-- > 0) continue;
    return config;
  }
}

// A model with a scheduler, on one thread.
class Server {
 public:
  Server(const ModelFiles& files, const Numerics& numerics, int slots,
         int max_drafted_tokens, int max_step_rows)
      : runner_(files, {.weights = numerics.weights,
                        .cache = numerics.cache,
                        .slots = slots}) {
    options_.eos_token_ids = {kEos};
    options_.max_drafted_tokens = max_drafted_tokens;
    options_.max_step_rows = max_step_rows;
    if (files.config.max_length.has_value()) {
      options_.max_length = *files.config.max_length;
    }
    options_.prefix_states = &prefix_states_;
    Restart();
  }

  // The slots are as they were, which nobody may notice.
  void Restart() {
    scheduler_.reset();
    queue_ = std::make_unique<RequestQueue>(100, 1 << 20);
    scheduler_ = std::make_unique<Scheduler>(
        options_, &runner_.model(), &tokenizer_, ParallelFor(), queue_.get());
  }

  absl::Status CheckState(std::string_view state, int64_t position) {
    return runner_.model().CheckState(state, position);
  }

  Sink Submit(Request request) {
    auto sink = std::make_shared<RecordingSink>();
    request.sink = sink;
    std::vector<PrefixKey> keys =
        PrefixKeysOf(prefix_states_, request, runner_.model().chunk_size());
    auto owned = std::make_unique<Request>(std::move(request));
    EXPECT_TRUE(queue_->Push(owned, Clock::now(), std::move(keys)).ok());
    return sink;
  }
  Sink Run(Request request) {
    Sink sink = Submit(std::move(request));
    while (!sink->done()) scheduler_->RunOnce();
    EXPECT_TRUE(sink->status().ok()) << sink->status();
    return sink;
  }

  Scheduler& scheduler() { return *scheduler_; }
  FakePrefixStates& prefix_states() { return prefix_states_; }

 private:
  ModelRunner runner_;
  ByteTokenizer tokenizer_;
  EngineOptions options_;
  FakePrefixStates prefix_states_;
  std::unique_ptr<RequestQueue> queue_;
  std::unique_ptr<Scheduler> scheduler_;
};

// What a client has been told of an output.
struct Told {
  std::vector<int32_t> ids;
  std::vector<std::string> tokens;
  std::string text;
  std::optional<FinishReason> reason;

  void Append(const RecordingSink::Output& output) {
    ids.insert(ids.end(), output.ids.begin(), output.ids.end());
    tokens.insert(tokens.end(), output.tokens.begin(), output.tokens.end());
    text += output.text;
    if (output.finished.has_value()) reason = output.finished->reason;
  }
  int64_t size() const { return static_cast<int64_t>(ids.size()); }
};

class SessionHistoriesTest : public testing::TestWithParam<Numerics> {
 protected:
  SessionHistoriesTest()
      : config_(SmallModel(GetParam().token_shift, GetParam().model)),
        files_(config_, RandomOptions(7)),
        codec_(
            {.model = "m",
             .tokenizer = "t",
             .state_format = "s",
             .numerics = "n"},
            SnapshotCompression::kZstd,
            {.num_ids = config_.vocab_size,
             .check_state = [this](std::string_view state, int64_t position) {
               return servers_.front()->CheckState(state, position);
             }}) {
    servers_.push_back(
        std::make_unique<Server>(files_.files(), GetParam(), 3, 0, 0));
    servers_.push_back(
        std::make_unique<Server>(files_.files(), GetParam(), 5, 4, 6));
  }

  int64_t Integer(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random_);
  }
  bool Chance(double p) { return std::bernoulli_distribution(p)(random_); }

  Server& AnyServer() { return *servers_[Integer(0, 1)]; }

  std::vector<int32_t> AnyIds(int64_t size) {
    std::vector<int32_t> ids;
    while (static_cast<int64_t>(ids.size()) < size) {
      ids.push_back(kAlphabet[Integer(0, std::size(kAlphabet) - 1)]);
    }
    return ids;
  }

  Request AnyRequest() {
    Request request;
    request.id = "it";
    request.owner = "us";
    request.save = true;
    request.prompt = AnyIds(Integer(1, 3 * config_.chunk_size + 1));
    SamplingOptions& sampling = request.sampling;
    sampling.allowed_token_ids = kAlphabet;
    sampling.logit_bias = {
        {kEos, 5.0f}, {'a', 2.0f}, {'b', 2.0f}, {0xC3, 2.0f}};
    sampling.seed = random_();
    sampling.temperature = Chance(0.2) ? 0 : Chance(0.5) ? 0.4f : 1;
    if (Chance(0.5)) {
      sampling.repetition_penalty = 1.2f;
      sampling.presence_penalty = 0.2f;
      sampling.frequency_penalty = 0.1f;
      sampling.penalty_window = static_cast<int32_t>(Integer(1, 60));
    }
    StoppingOptions& stopping = request.stopping;
    stopping.max_tokens = Integer(1, 40);
    stopping.min_tokens = Integer(0, std::min<int64_t>(stopping.max_tokens, 9));
    stopping.ignore_eos = Chance(0.5);
    stopping.include_stop = Chance(0.2);
    const std::vector<std::string> strings = {"ab",
                                              "bca",
                                              "c c",
                                              "aaaa",
                                              "\xC3\xA9",
                                              "\xC3\xA9"
                                              "b",
                                              "\xE2\x82\xAC"};
    for (const std::string& string : strings) {
      if (Chance(0.3)) stopping.stop_strings.push_back(string);
    }
    request.response.logprobs = static_cast<int32_t>(Integer(-1, 1));
    request.response.echo = Chance(0.1);
    return request;
  }

  // Others in some of the slots.
  std::vector<Sink> SubmitOthers(Server& server) {
    std::vector<Sink> others;
    for (int64_t n = Integer(0, 2); n > 0; --n) {
      Request other = AnyRequest();
      other.id = "other";
      other.stopping.max_tokens = 1000;
      others.push_back(server.Submit(std::move(other)));
    }
    for (int64_t steps = Integer(0, 3); steps > 0; --steps) {
      server.scheduler().RunOnce();
    }
    return others;
  }
  static void Cancel(const std::vector<Sink>& sinks) {
    for (const Sink& sink : sinks) sink->cancelled = true;
  }

  SnapshotPtr Moved(SnapshotPtr snapshot) {
    if (Chance(0.5)) return snapshot;
    auto decoded = codec_.Decode(codec_.Encode(*snapshot));
    EXPECT_TRUE(decoded.ok()) << decoded.status();
    return *std::move(decoded);
  }

  // `request` from where `told` and `start` are, up to `end` tokens.
  static Request Rest(const Request& request, const Told& told,
                      const SnapshotPtr& start, int64_t end) {
    Request rest = request;
    if (start != nullptr) {
      rest.start = start;
      rest.prompt.clear();
      StoppingOptions& stopping = rest.stopping;
      stopping.max_tokens = end - told.size();
      stopping.min_tokens =
          std::max<int64_t>(0, stopping.min_tokens - told.size());
    } else {
      rest.stopping.max_tokens = end;
      rest.prior_output_ids = {told.ids};
    }
    return rest;
  }

  // One stage of a history. `start`: a snapshot of the text as it was told, or
  // null.
  void GoOn(const Request& request, Told& told, SnapshotPtr& start) {
    Server& server = AnyServer();
    if (Chance(0.1)) server.Restart();
    if (Chance(0.3)) start = nullptr;  // from the ids, or a cached state
    server.prefix_states().most_chunks = Chance(0.5) ? 1000 : Integer(0, 4);
    const std::vector<Sink> others = SubmitOthers(server);
    const int64_t most = request.stopping.max_tokens;
    const int64_t end = Chance(0.3) ? most : Integer(told.size(), most);
    if (Chance(0.5) || end == told.size()) {
      Sink sink = server.Run(Rest(request, told, start, end));
      told.Append(sink->outputs[0]);
      start = Moved(sink->outputs[0].finished->snapshot);
    } else {
      Sink sink = server.Submit(Rest(request, told, start, most));
      const auto num_told = [&] {
        const auto output = sink->outputs.find(0);
        return told.size() +
               (output == sink->outputs.end()
                    ? 0
                    : static_cast<int64_t>(output->second.ids.size()));
      };
      while (!sink->done() && num_told() < end) server.scheduler().RunOnce();
      auto taken = server.scheduler().TakeSnapshot("us", "it", 0);
      EXPECT_TRUE(taken.ok()) << taken.status();
      told.Append(sink->outputs[0]);
      start = Moved(*std::move(taken));
      Cancel({sink});
    }
    Cancel(others);
    server.scheduler().RunOnce();
  }

  // Branches with a seed of their own, from the snapshot and from the ids.
  void Fork(const Request& request, const Told& told,
            const SnapshotPtr& start) {
    Request branch = request;
    branch.sampling.seed = random_();
    const int64_t end = request.stopping.max_tokens;
    Sink expected = AnyServer().Run(Rest(branch, told, nullptr, end));
    for (const auto& server : servers_) {
      Sink sink = server->Run(Rest(branch, told, start, end));
      EXPECT_EQ(sink->outputs[0].tokens, expected->outputs[0].tokens);
      EXPECT_EQ(sink->outputs[0].text, expected->outputs[0].text);
    }
  }

  const ModelConfig config_;
  const RandomModelFiles files_;
  const SnapshotCodec codec_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::mt19937_64 random_{20261130};
};

TEST_P(SessionHistoriesTest, AreNotToBeHeard) {
  std::map<FinishReason, int> reasons;
  int64_t num_stages = 0;
  for (int history = 0; history < kHistories; ++history) {
    SCOPED_TRACE(history);
    const Request request = AnyRequest();
    servers_[0]->prefix_states().most_chunks = 0;
    Sink sink = servers_[0]->Run(request);
    Told whole;
    whole.Append(sink->outputs[0]);
    const SnapshotPtr expected = sink->outputs[0].finished->snapshot;
    ++reasons[*whole.reason];

    Told told;
    SnapshotPtr start;
    do {
      GoOn(request, told, start);
      ++num_stages;
      if (told.reason == FinishReason::kMaxTokens &&
          told.size() < request.stopping.max_tokens) {
        told.reason.reset();
      }
      if (!told.reason.has_value() && Chance(0.1)) Fork(request, told, start);
    } while (!told.reason.has_value() && !HasFailure());

    EXPECT_EQ(told.tokens, whole.tokens);
    EXPECT_EQ(told.text, whole.text);
    EXPECT_EQ(told.reason, whole.reason);
    EXPECT_EQ(start->recent, expected->recent);
    EXPECT_EQ(start->held, expected->held);
    EXPECT_EQ(start->incomplete, expected->incomplete);
    EXPECT_EQ(start->ended, expected->ended);
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(num_stages, kHistories + kHistories / 2);
  // The histories are of every kind, if there are many.
  if (kHistories >= 400) {
    EXPECT_GT(reasons[FinishReason::kStopString], 0);
    EXPECT_GT(reasons[FinishReason::kMaxTokens], 0);
  }
}

std::vector<Numerics> AllNumerics() {
  std::vector<Numerics> all;
  // Of the other models some say one thing only.
  for (int model = 1; model <= 3; ++model) {
    for (const bool shift : {false, true}) {
      all.push_back({DataType::kFloat32, DataType::kFloat32, shift, model});
      all.push_back({DataType::kBFloat16, DataType::kBFloat16, shift, model});
      all.push_back({DataType::kInt8, DataType::kBFloat16, shift, model});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Numerics, SessionHistoriesTest,
                         testing::ValuesIn(AllNumerics()),
                         [](const auto& info) {
                           const Numerics& numerics = info.param;
                           const std::string weights =
                               numerics.weights == DataType::kFloat32
                                   ? "Float32"
                               : numerics.weights == DataType::kBFloat16
                                   ? "BFloat16"
                                   : "Int8";
                           return weights +
                                  (numerics.token_shift ? "WithShift" : "") +
                                  "Model" + std::to_string(numerics.model);
                         });

}  // namespace
}  // namespace flash
