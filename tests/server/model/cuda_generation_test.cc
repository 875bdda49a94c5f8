// Whole generations on a card, or on the emulated one, against those of the
// CPU; and the same bits on it however the tokens come. Sums on a card are
// divided in another way than on the CPU, so that its bits are its own.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/status/status.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/server/model/model_runner.h"

namespace flash {
namespace {

// Of a logit, which is a few units. In bfloat16 a sum that differs in its last
// bit may be rounded to the next number, 1/256 away, in every layer; and not
// every CPU rounds the inputs of bfloat16 weights.
constexpr double kTolerance = 2e-4;
constexpr double kBFloat16Tolerance = 0.15;

struct Numerics {
  DataType weights;
  DataType cache;
};

constexpr uint64_t kSeeds[] = {2, 12, 22, 26, 37, 38, 46, 48, 50};

TEST(CudaGenerationSeedsTest, HaveEverySettingOfTheNetwork) {
  std::set<NormConfig::Type> norms;
  std::set<EmbeddingConfig::Position> positions;
  std::set<RopeConfig::Layout> layouts;
  std::set<QuadraticConfig::Activation> activations;
  std::set<bool> shifts, quadratics, linears, ropes;
  for (const uint64_t seed : kSeeds) {
    const ModelConfig config = RandomConfig(seed);
    norms.insert(config.norm.type);
    positions.insert(config.embedding.position);
    shifts.insert(config.token_shift);
    ropes.insert(config.rope.has_value());
    if (config.rope.has_value()) layouts.insert(config.rope->layout);
    quadratics.insert(config.quadratic.has_value());
    if (config.quadratic.has_value()) {
      activations.insert(config.quadratic->activation);
    }
    linears.insert(config.linear.has_value());
  }
  EXPECT_EQ(norms.size(), 4u);
  EXPECT_EQ(positions.size(), 3u);
  EXPECT_EQ(layouts.size(), 2u);
  EXPECT_EQ(activations.size(), 2u);
  for (const std::set<bool>& both : {shifts, quadratics, linears, ropes}) {
    EXPECT_EQ(both.size(), 2u);
  }
}

double LargestDifference(const std::vector<LogitsRow>& a,
                         const std::vector<LogitsRow>& b) {
  FLASH_CHECK(a.size() == b.size());
  double largest = 0;
  for (size_t n = 0; n < a.size(); ++n) {
    FLASH_CHECK(a[n].size() == b[n].size());
    for (size_t c = 0; c < a[n].size(); ++c) {
      const double difference = std::fabs(double{a[n][c]} - b[n][c]);
      // A NaN is a difference too.
      if (!(difference <= largest)) largest = difference;
    }
  }
  return largest;
}

class CudaGenerationTest : public testing::TestWithParam<Numerics> {
 protected:
  void SetUp() override {
    const auto devices = CudaDevices();
    if (absl::IsUnavailable(devices.status())) {
      GTEST_SKIP() << devices.status();
    }
    ASSERT_TRUE(devices.ok()) << devices.status();
  }

  static RunnerSettings Settings() {
    return {
        .weights = GetParam().weights, .cache = GetParam().cache, .slots = 4};
  }

  static ModelRunner OnTheCard(const RandomModelFiles& model) {
    auto backend = MakeCudaBackend({});
    FLASH_CHECK(backend.ok());
    return ModelRunner(model.files(), Settings(), *std::move(backend));
  }

  static double Tolerance() {
    const bool exact = GetParam().weights == DataType::kFloat32 &&
                       GetParam().cache == DataType::kFloat32;
    return exact ? kTolerance : kBFloat16Tolerance;
  }
};

TEST_P(CudaGenerationTest, AgreesWithTheCpu) {
  for (const uint64_t seed : kSeeds) {
    const ModelConfig config = RandomConfig(seed);
    const RandomModelFiles model(config, RandomOptions(seed));
    ModelRunner cpu(model.files(), Settings());
    ModelRunner card = OnTheCard(model);
    const int64_t c = config.chunk_size;
    const auto ids = RandomIds(config, 2 * c + 5, seed);
    const auto prompt = std::span(ids).first(c + 2);
    const auto rest = std::span(ids).subspan(c + 2);
    EXPECT_LT(
        LargestDifference(card.Read(0, prompt, 256), cpu.Read(0, prompt, 256)),
        Tolerance())
        << "seed " << seed;
    EXPECT_LT(LargestDifference(card.Feed(0, rest, 1), cpu.Feed(0, rest, 1)),
              Tolerance())
        << "seed " << seed;
  }
}

TEST_P(CudaGenerationTest, GivesTheSameBitsStepByStepAndAsAPrompt) {
  for (const uint64_t seed : kSeeds) {
    const ModelConfig config = RandomConfig(seed);
    const RandomModelFiles model(config, RandomOptions(seed));
    ModelRunner card = OnTheCard(model);
    const auto ids = RandomIds(config, 2 * config.chunk_size + 3, seed);
    const std::vector<LogitsRow> steps = card.Read(0, ids, 1);
    EXPECT_EQ(card.Read(1, ids, 256), steps) << "seed " << seed;
    EXPECT_EQ(card.Read(2, ids, 11), steps) << "seed " << seed;
  }
}

// Two texts that stand at different places of their chunks and go on in one
// step, one of them with a run.
TEST_P(CudaGenerationTest, GivesTheSameBitsAloneAndBesideOthers) {
  for (const uint64_t seed : {12, 26, 46}) {
    const ModelConfig config = RandomConfig(seed);
    const RandomModelFiles model(config, RandomOptions(seed));
    ModelRunner card = OnTheCard(model);
    const auto ids = RandomIds(config, 40, seed);
    const auto text = std::span(ids);
    card.Read(0, text.first(5), 256);
    const std::vector<LogitsRow> alone = card.Feed(0, text.subspan(5, 3), 1);
    card.Read(1, text.first(5), 256);
    card.Read(2, text.subspan(9), 256);
    for (int n = 0; n < 3; ++n) {
      const std::vector<flash::Run> runs = {
          {.slot = 2, .tokens = text.subspan(2 * n, 1)},
          {.slot = 1,
           .tokens = text.subspan(5 + n, 1),
           .logits = LogitsWanted::kAll}};
      std::vector<RunResult> results;
      ASSERT_TRUE(card.model().Step(runs, results).ok());
      EXPECT_EQ(ModelRunner::Rows(results[1]).front(), alone[n])
          << "seed " << seed << ", token " << n;
    }
  }
}

TEST_P(CudaGenerationTest, GoesOnWithAStateOfTheCpu) {
  for (const uint64_t seed : {12, 26, 46}) {
    const ModelConfig config = RandomConfig(seed);
    const RandomModelFiles model(config, RandomOptions(seed));
    ModelRunner cpu(model.files(), Settings());
    ModelRunner card = OnTheCard(model);
    const auto ids =
        RandomIds(config, config.chunk_size + config.chunk_size / 2 + 6, seed);
    const auto text = std::span(ids);
    cpu.Read(0, text.first(ids.size() - 5), 256);
    ASSERT_TRUE(card.model().Load(2, *cpu.model().Save(0)).ok());
    EXPECT_EQ(*card.model().Save(2), *cpu.model().Save(0));
    const auto rest = text.last(5);
    EXPECT_LT(LargestDifference(card.Feed(2, rest, 1), cpu.Feed(0, rest, 1)),
              Tolerance())
        << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Numerics, CudaGenerationTest,
    testing::Values(Numerics{DataType::kFloat32, DataType::kFloat32},
                    Numerics{DataType::kBFloat16, DataType::kBFloat16},
                    Numerics{DataType::kBFloat16, DataType::kFloat32},
                    Numerics{DataType::kInt8, DataType::kBFloat16}),
    [](const auto& info) {
      const auto name = [](DataType type) -> std::string {
        if (type == DataType::kInt8) return "Int8";
        return type == DataType::kFloat32 ? "Float32" : "BFloat16";
      };
      return name(info.param.weights) + "With" + name(info.param.cache) +
             "States";
    });

}  // namespace
}  // namespace flash
