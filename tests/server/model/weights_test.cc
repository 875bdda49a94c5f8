#include "server/model/weights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/reference/model_writer.h"
#include "tests/reference/random_model.h"
#include "tests/reference/temporary_directory.h"

namespace flash {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pointwise;

// Between two sums of the same double-precision terms in another order.
constexpr float kTolerance = 1e-6f;

std::string ErrorOf(const absl::Status& status) {
  return status.ok() ? "accepted" : std::string(status.message());
}

// A model with every tensor that is not tied to a type of norm or bias.
ModelConfig SmallConfig() {
  ModelConfig config;
  config.vocab_size = 5;
  config.hidden_size = 4;
  config.expanded_size = 3;
  config.query_key_size = 2;
  config.num_layers = 2;
  config.chunk_size = 7;
  config.embedding.position = EmbeddingConfig::Position::kSinusoidal;
  config.embedding.position_base = 10000;
  config.norm = {NormConfig::Type::kLayerNorm, 1e-5, NormConfig::EpsMode::kAdd};
  config.bias.type = BiasConfig::Type::kToeplitz;
  config.bias.scale = 2;
  config.bias.length = 9;
  config.quadratic = QuadraticConfig{.score_scale = 1, .weight_scale = 1};
  config.linear = LinearConfig{.scale = 1};
  config.final_norm = {NormConfig::Type::kScaleNorm, 1e-5,
                       NormConfig::EpsMode::kAdd};
  return config;
}

// A model in a directory, whose tensors a test may spoil.
class WeightsTest : public testing::Test {
 protected:
  void Write(const ModelConfig& config) {
    config_ = config;
    ASSERT_TRUE(WriteRandomModel(config, {}, directory_.path()).ok());
    auto checkpoint = Checkpoint::Open(directory_.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    tensors_.clear();
    for (const auto& [name, view] : checkpoint->tensors()) {
      tensors_.push_back({name, view.type, view.shape, ToFloat32(view)});
    }
  }

  // Writes tensors_ and opens what was written.
  const Checkpoint& Reopen() {
    directory_.Write("model.safetensors", SafetensorsBytes(tensors_));
    checkpoint_.emplace(*Checkpoint::Open(directory_.path()));
    return *checkpoint_;
  }

  std::string CheckError() {
    return ErrorOf(CheckWeights(config_, Reopen()).status());
  }

  TensorToWrite& Named(const std::string& name) {
    return *std::find_if(tensors_.begin(), tensors_.end(),
                         [&](const auto& t) { return t.name == name; });
  }

  std::vector<float> Bias() {
    const auto weights = CheckWeights(config_, Reopen());
    EXPECT_TRUE(weights.ok()) << weights.status();
    const auto bias = BiasVector(config_, *weights, 1);
    EXPECT_TRUE(bias.ok()) << bias.status();
    return *bias;
  }

  ModelConfig config_;
  const TemporaryDirectory directory_;
  std::vector<TensorToWrite> tensors_;
  std::optional<Checkpoint> checkpoint_;
};

TEST_F(WeightsTest, GivesEveryTensorItsRole) {
  Write(SmallConfig());
  const auto weights = CheckWeights(config_, Reopen());
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_THAT(weights->embedding.shape, ElementsAre(5, 4));
  EXPECT_THAT(weights->position_scale->shape, ElementsAre(1));
  EXPECT_EQ(weights->position_weight, std::nullopt);
  ASSERT_EQ(weights->layers.size(), 2u);
  const LayerTensors& layer = weights->layers[1];
  EXPECT_EQ(layer.norm_weight->data,
            checkpoint_->Find("layers.1.norm.weight")->data);
  EXPECT_THAT(layer.norm_bias->shape, ElementsAre(4));
  EXPECT_THAT(layer.uvz_weight.shape, ElementsAre(8, 4));
  EXPECT_THAT(layer.uvz_bias->shape, ElementsAre(8));
  EXPECT_THAT(layer.head_scale.shape, ElementsAre(4, 2));
  EXPECT_THAT(layer.head_offset.shape, ElementsAre(4, 2));
  EXPECT_THAT(layer.relative_bias->shape, ElementsAre(17));
  EXPECT_EQ(layer.relative_bias_a, std::nullopt);
  EXPECT_THAT(layer.output_weight.shape, ElementsAre(4, 3));
  EXPECT_THAT(layer.output_bias->shape, ElementsAre(4));
  EXPECT_THAT(weights->final_norm_weight->shape, ElementsAre(1));
  EXPECT_EQ(weights->final_norm_bias, std::nullopt);
  EXPECT_THAT(weights->lm_head_weight->shape, ElementsAre(5, 4));
  EXPECT_THAT(weights->lm_head_bias->shape, ElementsAre(5));
}

TEST_F(WeightsTest, NamesEachTensorThatIsMissingAndNotOptional) {
  Write(SmallConfig());
  const std::vector<TensorToWrite> all = tensors_;
  for (size_t i = 0; i < all.size(); ++i) {
    tensors_ = all;
    tensors_.erase(tensors_.begin() + i);
    const std::string& name = all[i].name;
    const bool optional = name.ends_with("uvz.bias") ||
                          name.ends_with("output.bias") ||
                          name == "lm_head.bias";
    if (optional) {
      EXPECT_EQ(CheckError(), "accepted") << name;
    } else {
      EXPECT_THAT(CheckError(),
                  HasSubstr("tensor \"" + name + "\" is missing; expected is"));
    }
  }
}

TEST_F(WeightsTest, NamesEachTensorThatIsMisshapenWithBothShapes) {
  Write(SmallConfig());
  const std::vector<TensorToWrite> all = tensors_;
  for (size_t i = 0; i < all.size(); ++i) {
    tensors_ = all;
    tensors_[i].shape.push_back(1);  // as many elements, but not the shape
    EXPECT_THAT(CheckError(),
                AllOf(HasSubstr("tensor \"" + all[i].name + "\" has shape ["),
                      HasSubstr("1]; expected is [")));
  }
  tensors_ = all;
  Named("layers.0.output.weight").shape = {3, 4};
  EXPECT_THAT(CheckError(), HasSubstr("tensor \"layers.0.output.weight\" has "
                                      "shape [3, 4]; expected is [4, 3]"));
}

TEST_F(WeightsTest, NamesATensorThatIsSuperfluous) {
  Write(SmallConfig());
  const std::vector<TensorToWrite> all = tensors_;
  for (const char* name :
       {"position.weight", "layers.2.uvz.weight", "layers.01.uvz.weight",
        "layers.0.relative_bias.a", "final_norm.bias", "x", ""}) {
    tensors_ = all;
    tensors_.push_back({name, DataType::kFloat32, {4}, {1, 2, 3, 4}});
    EXPECT_THAT(CheckError(), HasSubstr("tensor \"" + std::string(name) +
                                        "\" of shape [4] has no place"));
  }
  tensors_ = all;
  config_.lm_head.tied = true;
  EXPECT_THAT(CheckError(), HasSubstr("\"lm_head.weight\" of shape [5, 4]"));
}

TEST_F(WeightsTest, KnowsTheTensorsOfEverySetting) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Write(RandomConfig(seed));
    EXPECT_EQ(CheckError(), "accepted") << seed;
  }
}

TEST_F(WeightsTest, HasNoBiasVectorWithoutABias) {
  ModelConfig config = SmallConfig();
  config.bias = {};
  Write(config);
  EXPECT_THAT(Bias(), IsEmpty());
}

TEST_F(WeightsTest, ReadsTheToeplitzBiasBackwardsFromItsMiddle) {
  Write(SmallConfig());
  Named("layers.1.relative_bias.weight").numbers = {
      0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  EXPECT_THAT(Bias(), ElementsAre(16, 14, 12, 10, 8, 6, 4));
}

TEST_F(WeightsTest, SpreadsT5BucketsLikeALogarithm) {
  ModelConfig config = SmallConfig();
  config.chunk_size = 200;
  config.bias = {.type = BiasConfig::Type::kT5,
                 .scale = 1,
                 .num_buckets = 32,
                 .max_distance = 128};
  Write(config);
  std::vector<float>& table = Named("layers.1.relative_bias.weight").numbers;
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i);
  const std::vector<float> bias = Bias();
  EXPECT_EQ(bias[0], 0);
  EXPECT_EQ(bias[15], 15);
  EXPECT_EQ(bias[16], 16);
  EXPECT_EQ(bias[18], 16);  // 16 + trunc(16 log_8(18 / 16)) = 16 + trunc(0.91)
  EXPECT_EQ(bias[19], 17);
  EXPECT_EQ(bias[32], 21);  // 16 + trunc(16 / 3)
  EXPECT_EQ(bias[64], 26);  // 16 + trunc(32 / 3)
  EXPECT_EQ(bias[112], 30);
  EXPECT_EQ(bias[113], 31);
  EXPECT_EQ(bias[127], 31);
  EXPECT_EQ(bias[128], 31);
  EXPECT_EQ(bias[199], 31);
}

TEST_F(WeightsTest, TakesOneT5BucketForZeroAndOneForAllElse) {
  ModelConfig config = SmallConfig();
  config.bias = {.type = BiasConfig::Type::kT5,
                 .scale = -3,
                 .num_buckets = 2,
                 .max_distance = 2};
  Write(config);
  Named("layers.1.relative_bias.weight").numbers = {1, 2};
  EXPECT_THAT(Bias(), ElementsAre(-3, -6, -6, -6, -6, -6, -6));
}

TEST_F(WeightsTest, RotatesTheRopeToeplitzBias) {
  ModelConfig config = SmallConfig();
  config.bias = {
      .type = BiasConfig::Type::kRopeToeplitz, .scale = 2, .base = 10000};
  Write(config);
  // One pair, whose frequency is 1: a turned by δ, times b.
  Named("layers.1.relative_bias.a").numbers = {3, 5};
  Named("layers.1.relative_bias.b").numbers = {7, 11};
  std::vector<float> expected;
  for (int n = 0; n < 7; ++n) {
    const double first = 3 * std::cos(n) - 5 * std::sin(n);
    const double second = 5 * std::cos(n) + 3 * std::sin(n);
    expected.push_back(static_cast<float>(2 * (first * 7 + second * 11)));
  }
  EXPECT_THAT(Bias(),
              Pointwise(testing::FloatNear(100 * kTolerance), expected));
}

TEST_F(WeightsTest, RefusesABiasThatIsNotFinite) {
  Write(SmallConfig());
  config_.bias.scale = 3e38;
  Named("layers.1.relative_bias.weight").numbers[7] = 100;  // distance 1
  const auto weights = CheckWeights(config_, Reopen());
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_THAT(ErrorOf(BiasVector(config_, *weights, 1).status()),
              HasSubstr("layer 1: the bias of distance 1 is not a finite"));
}

// A one-dimensional tensor of these bits.
template <typename Bits>
TensorView ViewOf(DataType type, const std::vector<Bits>& bits) {
  return {type,
          {static_cast<int64_t>(bits.size())},
          reinterpret_cast<const std::byte*>(bits.data())};
}

TEST(CheckFiniteTest, FindsEveryInfinityAndEveryNaN) {
  for (const DataType type : {DataType::kFloat16, DataType::kBFloat16}) {
    const uint32_t exponent = type == DataType::kFloat16 ? 0x7c00 : 0x7f80;
    for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
      const std::vector<uint16_t> one = {static_cast<uint16_t>(bits)};
      const bool finite = (bits & exponent) != exponent;
      ASSERT_EQ(CheckFinite("x", ViewOf(type, one)).ok(), finite) << bits;
    }
  }
  for (const float number :
       {0.0f, -0.0f, 1e-45f, -std::numeric_limits<float>::max(),
        std::numeric_limits<float>::max()}) {
    const std::vector<float> one = {number};
    EXPECT_TRUE(CheckFinite("x", ViewOf(DataType::kFloat32, one)).ok());
  }
  for (const uint32_t bits :
       {0x7f800000u, 0xff800000u, 0x7f800001u, 0xffffffffu, 0x7fc00000u}) {
    const std::vector<uint32_t> one = {bits};
    EXPECT_FALSE(CheckFinite("x", ViewOf(DataType::kFloat32, one)).ok());
  }
}

TEST(CheckFiniteTest, NamesTheElementWhereverItIs) {
  for (size_t size = 1; size <= 19; ++size) {
    for (size_t i = 0; i < size; ++i) {
      // The largest numbers of either sign around it, which must not carry.
      std::vector<uint16_t> narrow(size, i % 2 == 0 ? 0xff7f : 0x7f7f);
      EXPECT_TRUE(CheckFinite("w", ViewOf(DataType::kBFloat16, narrow)).ok());
      narrow[i] = 0xffff;
      EXPECT_THAT(
          ErrorOf(CheckFinite("w", ViewOf(DataType::kBFloat16, narrow))),
          "tensor \"w\": element " + std::to_string(i) +
              " is not a finite number");
      std::vector<uint32_t> wide(size, 0xff7fffff);
      wide[i] = 0x7f800000;
      EXPECT_THAT(ErrorOf(CheckFinite("w", ViewOf(DataType::kFloat32, wide))),
                  HasSubstr("element " + std::to_string(i) + " is"));
    }
  }
  EXPECT_TRUE(CheckFinite("w", {DataType::kFloat32, {0}, nullptr}).ok());
}

TEST(ToFloat32Test, WidensEveryNumberExactly) {
  std::vector<uint16_t> bits(0x10000);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(i);
  const std::vector<float> half = ToFloat32(ViewOf(DataType::kFloat16, bits));
  const std::vector<float> brain = ToFloat32(ViewOf(DataType::kBFloat16, bits));
  for (size_t i = 0; i < bits.size(); ++i) {
    const int exponent = (i >> 10) & 0x1f;
    const double significand = (i & 0x3ff) / 1024.0 + (exponent == 0 ? 0 : 1);
    const double magnitude =
        std::ldexp(significand, std::max(exponent, 1) - 15);
    if (exponent != 31) {
      ASSERT_EQ(half[i], i & 0x8000 ? -magnitude : magnitude) << i;
      ASSERT_EQ(std::signbit(half[i]), i >= 0x8000) << i;
    }
    ASSERT_EQ(std::bit_cast<uint32_t>(brain[i]), i << 16);
  }
  EXPECT_EQ(half[0x7c00], std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(half[0xfe00]));
}

TEST(ToFloat32Test, ReadsNumbersAtAnyAddress) {
  const std::vector<float> numbers = {1.5f, -2.25f};
  std::vector<std::byte> bytes(9);
  std::memcpy(bytes.data() + 1, numbers.data(), 8);
  const TensorView view = {DataType::kFloat32, {2}, bytes.data() + 1};
  EXPECT_EQ(ToFloat32(view), numbers);
  EXPECT_TRUE(CheckFinite("x", view).ok());
}

}  // namespace
}  // namespace flash
