#include "server/model/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "kernels/float_mode.h"
#include "tests/server/model/naive_sampler.h"

namespace flash {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// One request's surroundings, with defaults that do nothing.
struct Sampling {
  Sampling() = default;
  explicit Sampling(std::vector<float> raw) : logits(std::move(raw)) {}

  std::vector<float> logits;
  SamplingOptions options;
  TokenHistory history{64};
  std::vector<int32_t> forbidden;
  int32_t num_pieces = std::numeric_limits<int32_t>::max();

  SampleInput Input(uint64_t position) const {
    return {.logits = logits,
            .options = options,
            .history = history,
            .forbidden = forbidden,
            .num_pieces = num_pieces,
            .draw = {.seed = 11, .output_index = 2, .position = position}};
  }
  absl::StatusOr<int32_t> Sample(uint64_t position = 0) const {
    SamplingScratch scratch(static_cast<int32_t>(logits.size()));
    return SampleToken(Input(position), scratch);
  }
  // Every id that some of 200 positions draws.
  std::set<int32_t> Drawn() const {
    std::set<int32_t> ids;
    for (uint64_t position = 0; position < 200; ++position) {
      const auto id = Sample(position);
      EXPECT_TRUE(id.ok()) << id.status().ToString();
      if (id.ok()) ids.insert(*id);
    }
    return ids;
  }
};

Sampling Greedy(std::vector<float> logits) {
  Sampling sampling(std::move(logits));
  sampling.options.temperature = 0;
  return sampling;
}

int32_t Token(const Sampling& sampling) {
  const auto id = sampling.Sample();
  EXPECT_TRUE(id.ok()) << id.status().ToString();
  return id.value_or(-1);
}

using Ids = std::set<int32_t>;

TEST(SampleToken, TakesTheHighestAndOfEqualOnesTheLowestId) {
  EXPECT_EQ(Token(Greedy({1, 5, 2, 5})), 1);
  EXPECT_EQ(Token(Greedy({-0.0f, 0.0f})), 0);
  EXPECT_EQ(Token(Greedy({-3})), 0);
  std::vector<float> logits(5000, -7);
  logits[1024] = logits[4999] = -6;
  EXPECT_EQ(Token(Greedy(logits)), 1024);
}

TEST(SampleToken, AddsTheBias) {
  Sampling sampling = Greedy({1, 2, 3});
  sampling.options.logit_bias = {{0, 2.5f}, {-1, 9}, {3, 9}};
  EXPECT_EQ(Token(sampling), 0);
  sampling.options.logit_bias = {{2, -100}};
  EXPECT_EQ(Token(sampling), 1);
}

TEST(SampleToken, MasksWhatIsNotAllowedOrForbiddenOrHasNoPiece) {
  Sampling sampling = Greedy({9, 8, 7, 6, 5});
  sampling.forbidden = {0, -1, 5};
  EXPECT_EQ(Token(sampling), 1);
  sampling.options.allowed_token_ids = {-2, 0, 3, 4, 77};
  EXPECT_EQ(Token(sampling), 3);
  sampling.options.logit_bias = {{4, 2}, {2, 90}};
  EXPECT_EQ(Token(sampling), 4);
  sampling.num_pieces = 4;
  EXPECT_EQ(Token(sampling), 3);
}

TEST(SampleToken, APenaltyHoweverLargeForbidsNothing) {
  Sampling sampling = Greedy({-2, -3});
  sampling.options.repetition_penalty = 3e38f;
  sampling.history.AppendOutput(0);
  sampling.history.AppendOutput(1);
  EXPECT_EQ(Token(sampling), 0);
  sampling.options.temperature = 1;
  EXPECT_GE(Token(sampling), 0);
}

TEST(SampleToken, SaysSoWhenNoTokenIsAllowed) {
  for (const float temperature : {0.0f, 1.0f}) {
    Sampling sampling = Greedy({1, 2, 3});
    sampling.options.temperature = temperature;
    sampling.num_pieces = 0;
    EXPECT_EQ(sampling.Sample().status(),
              absl::InvalidArgumentError("no token is allowed"));
    sampling.num_pieces = 3;
    sampling.forbidden = {0, 1, 2};
    EXPECT_EQ(sampling.Sample().status().code(),
              absl::StatusCode::kInvalidArgument);
    sampling.forbidden = {1};
    sampling.options.allowed_token_ids = {1, 3};
    EXPECT_EQ(sampling.Sample().status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(SampleToken, FaultsOnLogitsThatAreNotNumbers) {
  for (const float bad : {std::nanf(""), -std::nanf(""), kInfinity}) {
    for (const size_t at : {size_t{0}, size_t{17}, size_t{1040}}) {
      Sampling sampling = Greedy(std::vector<float>(1041, 1));
      sampling.logits[at] = bad;
      sampling.options.allowed_token_ids = {3, 5};  // whether or not it counts
      EXPECT_EQ(sampling.Sample().status().code(), absl::StatusCode::kInternal);
    }
  }
}

TEST(SampleToken, NeverDrawsAnIdWhoseLogitIsMinusInfinity) {
  Sampling sampling({-kInfinity, 1, -kInfinity, 1});
  EXPECT_EQ(sampling.Drawn(), (Ids{1, 3}));
}

TEST(SampleToken, DividesOrMultipliesByTheRepetitionPenalty) {
  Sampling sampling = Greedy({4, 3, -1});
  sampling.options.repetition_penalty = 2;
  sampling.history.AppendPrompt(std::vector<int32_t>{0, 0});
  EXPECT_EQ(Token(sampling), 1);  // 4 / 2 < 3, once however often
  sampling.logits = {-2, -3, -9};
  EXPECT_EQ(Token(sampling), 1);  // -2 * 2 < -3
}

TEST(SampleToken, CountsOutputTokensForPresenceAndFrequency) {
  Sampling sampling = Greedy({4, 3.5f, 0});
  sampling.history.AppendPrompt(std::vector<int32_t>{0, 0, 0});
  sampling.options.presence_penalty = 1;
  EXPECT_EQ(Token(sampling), 0);  // a prompt does not count
  sampling.history.AppendOutput(0);
  EXPECT_EQ(Token(sampling), 1);
  sampling.options.presence_penalty = 0;
  sampling.options.frequency_penalty = 0.3f;
  EXPECT_EQ(Token(sampling), 0);
  sampling.history.AppendOutput(0);
  EXPECT_EQ(Token(sampling), 1);
}

TEST(SampleToken, KeepsTheHighestWithTopK) {
  Sampling sampling({1, 3, 2, 3, 2});
  sampling.options.temperature = 10;
  sampling.options.top_k = 1;
  EXPECT_EQ(sampling.Drawn(), (Ids{1}));
  sampling.options.top_k = 3;
  EXPECT_EQ(sampling.Drawn(), (Ids{1, 2, 3}));
  sampling.options.top_k = 100;
  EXPECT_EQ(sampling.Drawn(), (Ids{0, 1, 2, 3, 4}));
}

TEST(SampleToken, KeepsTheShortestRunWithTopP) {
  // Probabilities 1/2, 1/4, 1/8, 1/8.
  const float ln2 = std::log(2.0f);
  Sampling sampling({0, -ln2, -2 * ln2, -2 * ln2});
  sampling.options.top_p = 0.49f;
  EXPECT_EQ(sampling.Drawn(), (Ids{0}));
  sampling.options.top_p = 0.6f;
  EXPECT_EQ(sampling.Drawn(), (Ids{0, 1}));
  sampling.options.top_p = 0.8f;
  EXPECT_EQ(sampling.Drawn(), (Ids{0, 1, 2}));
  sampling.options.top_p = 0.9f;
  EXPECT_EQ(sampling.Drawn(), (Ids{0, 1, 2, 3}));
}

TEST(SampleToken, MeasuresMinPAgainstTheMostLikely) {
  const float ln2 = std::log(2.0f);
  Sampling sampling({-2 * ln2, 0, -ln2});
  sampling.options.min_p = 0.3f;
  EXPECT_EQ(sampling.Drawn(), (Ids{1, 2}));
  sampling.options.min_p = 1;
  EXPECT_EQ(sampling.Drawn(), (Ids{1}));
}

TEST(SampleToken, KeepsAtLeastOneTokenWhateverTheOptions) {
  Sampling sampling({1, 5, 2});
  for (const float tiny : {1e-45f, 1e-30f, 1e-7f}) {
    sampling.options = {};
    sampling.options.temperature = tiny;
    EXPECT_EQ(sampling.Drawn(), (Ids{1})) << tiny;
    sampling.options.temperature = 1;
    sampling.options.top_p = tiny;
    EXPECT_EQ(sampling.Drawn(), (Ids{1})) << tiny;
  }
}

TEST(SampleToken, StaysDefinedWithOptionsThatTheServiceRefuses) {
  const float nan = std::nanf("");
  for (const float odd : {nan, kInfinity, -kInfinity, 0.0f, -1.0f, 3e38f}) {
    Sampling sampling({1, 5, 2, -3e38f, 3e38f});
    sampling.history.AppendOutput(1);
    sampling.options.temperature = odd;
    EXPECT_TRUE(sampling.Sample().ok());
    sampling.options.temperature = 1;
    sampling.options.top_p = odd;
    sampling.options.min_p = odd;
    sampling.options.top_k = -5;
    EXPECT_TRUE(sampling.Sample().ok());
    sampling.options.logit_bias = {{1, odd}, {4, odd}};
    sampling.options.repetition_penalty = odd;
    sampling.options.presence_penalty = odd;
    sampling.options.frequency_penalty = odd;
    EXPECT_TRUE(sampling.Sample().ok());
  }
}

// Options of every kind, over sizes around the widths of the loops.
Sampling RandomSampling(std::mt19937& random, int size) {
  std::normal_distribution<float> normal;
  const auto one_in = [&](unsigned n) { return random() % n == 0; };
  Sampling sampling;
  const float spread = one_in(2) ? 1.0f : 4.0f;
  const bool rounded = one_in(3);  // many ties
  for (int id = 0; id < size; ++id) {
    const float logit = spread * normal(random);
    sampling.logits.push_back(rounded ? std::round(logit) : logit);
  }
  SamplingOptions& options = sampling.options;
  const float temperatures[] = {0, 0.01f, 0.7f, 1, 1, 2, 100};
  options.temperature = temperatures[random() % 7];
  if (one_in(3)) options.top_k = static_cast<int32_t>(1 + random() % 100);
  if (one_in(9)) options.top_k = size / 2 + 1;
  const float top_ps[] = {1e-6f, 0.1f, 0.5f, 0.9f, 0.95f, 0.999f, 0.9999999f};
  if (one_in(2)) options.top_p = top_ps[random() % 7];
  if (one_in(3)) options.min_p = static_cast<float>(random() % 100) / 100;
  if (one_in(3)) options.repetition_penalty = one_in(2) ? 1.3f : 0.8f;
  if (one_in(3)) options.presence_penalty = 0.5f;
  if (one_in(3)) options.frequency_penalty = -0.2f;
  for (int i = 0; i < 40; ++i) {
    sampling.history.AppendOutput(static_cast<int32_t>(random() % size));
  }
  if (one_in(4)) options.logit_bias[static_cast<int32_t>(random() % size)] = 3;
  if (one_in(4)) sampling.forbidden = {0, static_cast<int32_t>(size / 2)};
  if (one_in(4)) sampling.num_pieces = size - size / 5;
  if (one_in(4)) {
    for (int id = 0; id < size; id += 3) {
      options.allowed_token_ids.push_back(id);
    }
  }
  return sampling;
}

TEST(SampleToken, AgreesWithTheNaiveSamplerToTheLastToken) {
  std::mt19937 random(5);
  const int sizes[] = {1, 2, 15, 16, 17, 255, 1025, 3001};
  SamplingScratch scratch(3001);
  for (int round = 0; round < 1500; ++round) {
    const Sampling sampling = RandomSampling(random, sizes[round % 8]);
    for (uint64_t position = 0; position < 4; ++position) {
      const SampleInput input = sampling.Input(position);
      const auto id = SampleToken(input, scratch);
      const std::optional<int32_t> expected = NaiveSample(input);
      ASSERT_EQ(id.value_or(-1), expected.value_or(-1)) << round;
    }
  }
}

TEST(SampleToken, AgreesWithTheNaiveSamplerOverALargeVocabulary) {
  std::mt19937 random(6);
  SamplingScratch scratch(50021);
  for (int round = 0; round < 60; ++round) {
    Sampling sampling = RandomSampling(random, 50021);
    sampling.options.allowed_token_ids.clear();  // quadratic in the naive one
    const SampleInput input = sampling.Input(round);
    ASSERT_EQ(SampleToken(input, scratch).value_or(-1), NaiveSample(input))
        << round;
  }
}

TEST(SampleToken, DrawsWithTheProbabilitiesOfTheSoftmax) {
  Sampling sampling;
  for (int id = 0; id < 20; ++id) {
    sampling.logits.push_back(0.35f * static_cast<float>((id * 7) % 20));
  }
  sampling.options.temperature = 1.5f;
  constexpr int kDraws = 40000;
  std::vector<int> counts(20);
  for (uint64_t position = 0; position < kDraws; ++position) {
    ++counts[sampling.Sample(position).value()];
  }
  double sum = 0;
  for (const float logit : sampling.logits) sum += std::exp(logit / 1.5);
  double chi_square = 0;
  for (int id = 0; id < 20; ++id) {
    const double expected = kDraws * std::exp(sampling.logits[id] / 1.5) / sum;
    chi_square += std::pow(counts[id] - expected, 2) / expected;
  }
  // 19 degrees of freedom: 1 in 1000 fair samplers would be above. The draws
  // are fixed, so this passes always or never.
  EXPECT_LT(chi_square, 43.8);
}

TEST(SampleToken, DrawsTheSameTokenInTheModeOfTheComputeThreads) {
  std::mt19937 random(8);
  for (int round = 0; round < 50; ++round) {
    const Sampling sampling = RandomSampling(random, 1025);
    const auto id = sampling.Sample();
    const FloatMode mode;
    EXPECT_EQ(sampling.Sample().value_or(-1), id.value_or(-1));
  }
}

TEST(SampleToken, GoesOnFromPriorIdsAsIfItHadDrawnThem) {
  Sampling sampling;
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  for (int id = 0; id < 50; ++id) sampling.logits.push_back(normal(random));
  sampling.options.frequency_penalty = 0.7f;
  sampling.options.repetition_penalty = 1.2f;
  sampling.history = TokenHistory(8);
  std::vector<int32_t> output;
  for (uint64_t position = 0; position < 30; ++position) {
    Sampling continued = sampling;
    continued.history = TokenHistory(8);
    for (const int32_t id : output) continued.history.AppendOutput(id);
    const int32_t id = sampling.Sample(position).value();
    ASSERT_EQ(continued.Sample(position).value(), id);
    sampling.history.AppendOutput(id);
    output.push_back(id);
  }
}

TEST(HasPenalties, IsFalseForOptionsThatDoNotLookBack) {
  SamplingOptions options;
  EXPECT_FALSE(HasPenalties(options));
  options.frequency_penalty = 0.1f;
  EXPECT_TRUE(HasPenalties(options));
  options.penalty_window = 0;
  EXPECT_FALSE(HasPenalties(options));
}

}  // namespace
}  // namespace flash
