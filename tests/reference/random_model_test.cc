// Random models are worth something only if every part of them matters.

#include "tests/reference/random_model.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/model/checkpoint.h"
#include "server/model/weights.h"
#include "tests/reference/model_writer.h"
#include "tests/reference/random_source.h"
#include "tests/reference/reference.h"
#include "tests/reference/temporary_directory.h"

namespace flash {
namespace {

constexpr uint64_t kNumModels = 60;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<int32_t> RandomText(const ModelConfig& config) {
  RandomSource random(7);
  std::vector<int32_t> ids(3 * config.chunk_size + 1);
  for (int32_t& id : ids) {
    id = static_cast<int32_t>(random.Integer(0, config.vocab_size - 1));
  }
  return ids;
}

TEST(RandomModelTest, IsAModelThatTheLoaderAccepts) {
  for (uint64_t seed = 0; seed < kNumModels; ++seed) {
    SCOPED_TRACE(seed);
    const TemporaryDirectory directory;
    ASSERT_TRUE(WriteRandomModel(RandomConfig(seed), RandomOptions(seed),
                                 directory.path())
                    .ok());
    const auto config = ParseModelConfig(
        ReadFile(directory.path() + "/config.json"), "config.json");
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(ConfigJson(*config), ConfigJson(RandomConfig(seed)));
    const auto checkpoint = Checkpoint::Open(directory.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    const auto weights = CheckWeights(*config, *checkpoint);
    ASSERT_TRUE(weights.ok()) << weights.status();
    for (const auto& [name, tensor] : checkpoint->tensors()) {
      EXPECT_TRUE(CheckFinite(name, tensor).ok());
    }
  }
}

TEST(RandomModelTest, IsTheSameForTheSameSeed) {
  const TemporaryDirectory first, second;
  for (const TemporaryDirectory* directory : {&first, &second}) {
    ASSERT_TRUE(
        WriteRandomModel(RandomConfig(3), RandomOptions(3), directory->path())
            .ok());
  }
  for (const char* name : {"/config.json", "/model.safetensors"}) {
    EXPECT_EQ(ReadFile(first.path() + name), ReadFile(second.path() + name));
  }
}

TEST(RandomModelTest, HasActivationsOfTheOrderOfOneAndLogitsThatDiffer) {
  for (uint64_t seed = 0; seed < kNumModels; ++seed) {
    SCOPED_TRACE(testing::Message() << seed << ConfigJson(RandomConfig(seed)));
    const ModelConfig config = RandomConfig(seed);
    const TemporaryDirectory directory;
    ASSERT_TRUE(
        WriteRandomModel(config, RandomOptions(seed), directory.path()).ok());
    const auto checkpoint = Checkpoint::Open(directory.path());
    const auto reference = Reference::Create(config, *checkpoint);
    ASSERT_TRUE(reference.ok()) << reference.status();
    Reference::Sequence sequence = reference->Start();
    double spread = 0;
    for (const int32_t id : RandomText(config)) {
      const std::vector<double> logits = sequence.Step(id);
      for (const auto& x : sequence.residual_stream()) {
        for (const double value : x) ASSERT_LT(std::abs(value), 50);
      }
      const auto [low, high] =
          std::minmax_element(logits.begin(), logits.end());
      ASSERT_LT(*high - *low, 200);
      spread = std::max(spread, *high - *low);
    }
    EXPECT_GT(spread, 0.5);
  }
}

// What becomes of the logits if one tensor is multiplied by 1.25.
double Effect(const ModelConfig& config, const Checkpoint& checkpoint,
              const std::string& changed) {
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, view] : checkpoint.tensors()) {
    TensorToWrite tensor{name, DataType::kFloat32, view.shape, ToFloat32(view)};
    for (float& number : tensor.numbers) {
      if (name == changed) number *= 1.25f;
    }
    tensors.push_back(std::move(tensor));
  }
  const TemporaryDirectory directory;
  directory.Write("model.safetensors", SafetensorsBytes(tensors));
  const auto other = Checkpoint::Open(directory.path());
  const std::vector<int32_t> ids = RandomText(config);
  const auto before = Reference::Create(config, checkpoint)->Logits(ids);
  const auto after = Reference::Create(config, *other)->Logits(ids);
  double effect = 0;
  for (size_t t = 0; t < before.size(); ++t) {
    for (size_t i = 0; i < before[t].size(); ++i) {
      effect = std::max(effect, std::abs(before[t][i] - after[t][i]));
    }
  }
  return effect;
}

TEST(RandomModelTest, DependsOnEveryTensor) {
  for (uint64_t seed = 0; seed < kNumModels / 2; ++seed) {
    const ModelConfig config = RandomConfig(seed);
    const TemporaryDirectory directory;
    ASSERT_TRUE(
        WriteRandomModel(config, RandomOptions(seed), directory.path()).ok());
    const auto checkpoint = Checkpoint::Open(directory.path());
    for (const auto& [name, view] : checkpoint->tensors()) {
      EXPECT_GT(Effect(config, *checkpoint, name), 1e-3) << seed << name;
    }
  }
}

// Counts the settings that have turned up, by the lines of their config.json.
TEST(RandomModelTest, DrawsEveryValueOfEverySetting) {
  std::set<std::string> lines;
  for (uint64_t seed = 0; seed < kNumModels; ++seed) {
    std::istringstream text(ConfigJson(RandomConfig(seed)));
    for (std::string line; std::getline(text, line);) {
      const size_t begin = line.find('"');
      if (begin == std::string::npos) continue;
      lines.insert(line.substr(begin, line.rfind(',') - begin));
    }
  }
  EXPECT_THAT(lines, testing::IsSupersetOf({"\"type\": \"bytes\"",
                                            "\"type\": \"scale_norm\"",
                                            "\"type\": \"layer_norm\"",
                                            "\"type\": \"rms_norm\"",
                                            "\"eps_mode\": \"add\"",
                                            "\"eps_mode\": \"clamp\"",
                                            "\"position\": \"none\"",
                                            "\"position\": \"sinusoidal\"",
                                            "\"position\": \"learned\"",
                                            "\"position\": \"sequence\"",
                                            "\"position\": \"chunk\"",
                                            "\"layout\": \"halves\"",
                                            "\"layout\": \"interleaved\"",
                                            "\"type\": \"none\"",
                                            "\"type\": \"t5\"",
                                            "\"type\": \"toeplitz\"",
                                            "\"type\": \"rope_toeplitz\"",
                                            "\"activation\": \"laplace\"",
                                            "\"activation\": \"relu_squared\"",
                                            "\"row_mean\": true",
                                            "\"row_mean\": false",
                                            "\"mean_past\": true",
                                            "\"mean_past\": false",
                                            "\"token_shift\": true",
                                            "\"token_shift\": false",
                                            "\"tied\": true",
                                            "\"tied\": false",
                                            "\"rope\": null",
                                            "\"quadratic\": null",
                                            "\"linear\": null",
                                            "\"max_length\": null",
                                            "\"chunk_size\": 1"}));
}

}  // namespace
}  // namespace flash
