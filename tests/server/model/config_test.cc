#include "server/model/config.h"

#include <cmath>
#include <numbers>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/reference/model_writer.h"
#include "tests/reference/random_model.h"

namespace flash {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Pointer = json::json_pointer;

constexpr char kExample[] = R"({
  "format": "flash-lm/1",
  "architecture": "flash",
  "vocab_size": 4096, "hidden_size": 256, "expanded_size": 512,
  "query_key_size": 128, "num_layers": 8, "chunk_size": 128,
  "trained_length": null, "max_length": null,
  "bos_token_id": 1, "eos_token_ids": [2],
  "tokenizer": {"type": "sentencepiece", "file": "tokenizer.model"},
  "embedding": {"scale": 1.0, "position": "none"},
  "norm": {"type": "scale_norm", "eps": 1e-5, "eps_mode": "add"},
  "token_shift": false,
  "rope": {"size": 128, "base": 10000.0, "layout": "halves",
           "position": "sequence"},
  "bias": {"type": "toeplitz", "scale": 1.0, "length": 128},
  "quadratic": {"score_scale": 0.0078125, "activation": "relu_squared",
                "weight_scale": 1.0, "row_mean": false},
  "linear": {"scale": 0.0078125, "mean_past": false},
  "final_norm": {"type": "layer_norm", "eps": 1e-5},
  "lm_head": {"tied": true}
})";

json Example() { return json::parse(kExample); }

// The example with another value at `pointer`, "/rope/size" say.
json With(const std::string& pointer, const json& value) {
  json file = Example();
  file[Pointer(pointer)] = value;
  return file;
}

std::string ErrorOf(const std::string& text) {
  const auto config = ParseModelConfig(text, "m/config.json");
  if (config.ok()) return "accepted";
  EXPECT_TRUE(absl::IsInvalidArgument(config.status()));
  return std::string(config.status().message());
}

std::string ErrorOf(const json& file) { return ErrorOf(file.dump()); }

ModelConfig Accepted(const json& file) {
  auto config = ParseModelConfig(file.dump(), "config.json");
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : ModelConfig();
}

TEST(ConfigTest, ReadsTheFormatsExample) {
  const ModelConfig config = Accepted(Example());
  EXPECT_EQ(config.vocab_size, 4096);
  EXPECT_EQ(config.hidden_size, 256);
  EXPECT_EQ(config.expanded_size, 512);
  EXPECT_EQ(config.query_key_size, 128);
  EXPECT_EQ(config.num_layers, 8);
  EXPECT_EQ(config.chunk_size, 128);
  EXPECT_EQ(config.trained_length, std::nullopt);
  EXPECT_EQ(config.max_length, std::nullopt);
  EXPECT_EQ(config.bos_token_id, 1);
  EXPECT_THAT(config.eos_token_ids, ElementsAre(2));
  EXPECT_EQ(config.tokenizer.type, TokenizerConfig::Type::kSentencePiece);
  EXPECT_EQ(config.tokenizer.file, "tokenizer.model");
  EXPECT_EQ(config.embedding.scale, 1.0);
  EXPECT_EQ(config.norm.type, NormConfig::Type::kScaleNorm);
  EXPECT_EQ(config.norm.eps, 1e-5);
  EXPECT_EQ(config.norm.eps_mode, NormConfig::EpsMode::kAdd);
  EXPECT_FALSE(config.token_shift);
  EXPECT_EQ(config.rope->size, 128);
  EXPECT_EQ(config.rope->layout, RopeConfig::Layout::kHalves);
  EXPECT_EQ(config.bias.type, BiasConfig::Type::kToeplitz);
  EXPECT_EQ(config.bias.length, 128);
  EXPECT_EQ(config.quadratic->score_scale, 0.0078125);
  EXPECT_EQ(config.linear->scale, 0.0078125);
  EXPECT_EQ(config.final_norm.type, NormConfig::Type::kLayerNorm);
  EXPECT_TRUE(config.lm_head.tied);
  EXPECT_EQ(config.num_heads(), 4);
}

TEST(ConfigTest, ReadsBackWhatWasWritten) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const std::string text = ConfigJson(RandomConfig(seed));
    const auto config = ParseModelConfig(text, "config.json");
    ASSERT_TRUE(config.ok()) << config.status() << text;
    EXPECT_EQ(ConfigJson(*config), text);
  }
}

TEST(ConfigTest, TakesTheFormatsNumbersForKeysThatMayBeLeftOut) {
  ModelConfig config =
      Accepted(With("/bias", {{"type", "rope_toeplitz"}, {"scale", 1}}));
  EXPECT_EQ(config.bias.base, 10000);
  config = Accepted(With("/quadratic/activation", "laplace"));
  EXPECT_DOUBLE_EQ(config.quadratic->laplace_mean, std::sqrt(0.5));
  EXPECT_DOUBLE_EQ(config.quadratic->laplace_std,
                   std::sqrt(1 / (4 * std::numbers::pi)));
}

TEST(ConfigTest, TakesTheNumbersOfKeysThatMayBeLeftOutButAreNot) {
  json file = With("/bias", {{"type", "rope_toeplitz"}, {"scale", 1}});
  file["bias"]["base"] = 77;
  EXPECT_EQ(Accepted(file).bias.base, 77);
  file["quadratic"]["activation"] = "laplace";
  file["quadratic"]["laplace_mean"] = 0.25;
  file["quadratic"]["laplace_std"] = 0.75;
  EXPECT_EQ(Accepted(file).quadratic->laplace_mean, 0.25);
  EXPECT_EQ(Accepted(file).quadratic->laplace_std, 0.75);
}

TEST(ConfigTest, TakesEitherBranchWithoutTheOther) {
  EXPECT_EQ(Accepted(With("/linear", nullptr)).num_heads(), 2);
  json file = With("/quadratic", nullptr);
  file["bias"] = {{"type", "none"}};
  EXPECT_EQ(Accepted(file).num_heads(), 2);
}

// Every key of the example, at any depth.
void CollectKeys(const json& object, std::string prefix,
                 std::vector<std::string>& keys) {
  for (const auto& item : object.items()) {
    keys.push_back(prefix + "/" + item.key());
    if (item.value().is_object()) {
      CollectKeys(item.value(), keys.back(), keys);
    }
  }
}

std::string AsPath(std::string pointer) {
  pointer.erase(0, 1);
  const size_t slash = pointer.find('/');
  if (slash != std::string::npos) pointer[slash] = '.';
  return pointer;
}

TEST(ConfigTest, RefusesAFileThatLacksAnyKey) {
  std::vector<std::string> keys;
  CollectKeys(Example(), "", keys);
  ASSERT_GT(keys.size(), 40u);
  for (const std::string& key : keys) {
    json file = Example();
    const Pointer pointer(key);
    file[pointer.parent_pointer()].erase(pointer.back());
    EXPECT_THAT(ErrorOf(file), AllOf(HasSubstr("m/config.json: "),
                                     HasSubstr("\"" + AsPath(key) + "\""),
                                     HasSubstr("is missing; accepted is ")))
        << key;
  }
}

TEST(ConfigTest, RefusesAKeyThatTheFormatDoesNotHave) {
  std::vector<std::string> keys;
  CollectKeys(Example(), "", keys);
  keys.push_back("/format");  // for the file itself
  for (const std::string& key : keys) {
    const Pointer parent = Pointer(key).parent_pointer();
    json file = Example();
    file[parent]["colour"] = 1;
    EXPECT_THAT(ErrorOf(file),
                AllOf(HasSubstr("colour\" is not a key of the format here"),
                      HasSubstr("accepted are ")))
        << key;
  }
}

TEST(ConfigTest, RefusesAnyValueOfAnotherKind) {
  std::vector<std::string> keys;
  CollectKeys(Example(), "", keys);
  for (const std::string& key : keys) {
    for (const json& value :
         {json(-1.5e300), json(json::array({"x"})), json("")}) {
      const std::string error = ErrorOf(With(key, value));
      EXPECT_THAT(error, HasSubstr("\"" + AsPath(key) + "\"")) << key;
      EXPECT_THAT(error, HasSubstr("; accepted is ")) << key;
    }
  }
}

struct Mistake {
  const char* key;  // a pointer
  json value;
  const char* message;  // a part of it
};

TEST(ConfigTest, RefusesValuesOutOfRange) {
  const std::vector<Mistake> mistakes = {
      {"/format", "flash-lm/2", "accepted is one of \"flash-lm/1\""},
      {"/architecture", "gpt", "accepted is one of \"flash\""},
      {"/vocab_size", 0, "is 0; accepted is an integer from 1 to"},
      {"/vocab_size", -4, "is -4; accepted is an integer from 1 to"},
      {"/vocab_size", 4096.0, "is 4096.0; accepted is an integer"},
      {"/vocab_size", 18446744073709551615u, "accepted is an integer"},
      {"/hidden_size", 1 << 25, "an integer from 1 to 16777216"},
      {"/num_layers", 1 << 20, "an integer from 1 to 4096"},
      {"/chunk_size", true, "is true; accepted is an integer"},
      {"/trained_length", 0, "or null"},
      {"/max_length", 0, "or null"},
      {"/bos_token_id", 4096, "an integer from 0 to 4095 or null"},
      {"/eos_token_ids", {2, 4096}, "has an element 4096"},
      {"/eos_token_ids", {-1}, "has an element -1"},
      {"/tokenizer/type", "bpe", "\"sentencepiece\", \"bytes\", \"none\""},
      {"/norm/eps", 0, "a number above 0"},
      {"/norm/eps", -1e-5, "a number above 0"},
      {"/norm/type", "batch_norm", "\"scale_norm\", \"layer_norm\""},
      {"/norm/eps_mode", "max", "\"add\", \"clamp\""},
      {"/rope/size", 130, "an integer from 2 to 128"},
      {"/rope/size", 0, "an integer from 2 to 128"},
      {"/rope/size", 7, "an even integer from 2 to 128"},
      {"/rope/base", 0, "a number above 0"},
      {"/rope/layout", "pairs", "\"halves\", \"interleaved\""},
      {"/rope/position", "none", "\"sequence\", \"chunk\""},
      {"/bias/length", 127, "an integer from 128 to"},
      {"/bias/scale", 1e39, "a number that float32 can hold"},
      {"/quadratic/activation", "softmax", "\"relu_squared\", \"laplace\""},
      {"/quadratic/row_mean", 1, "true or false"},
  };
  for (const Mistake& mistake : mistakes) {
    EXPECT_THAT(ErrorOf(With(mistake.key, mistake.value)),
                AllOf(HasSubstr("\"" + AsPath(mistake.key) + "\""),
                      HasSubstr(mistake.message)));
  }
}

TEST(ConfigTest, RefusesKeysThatBelongToAnotherType) {
  const std::vector<Mistake> mistakes = {
      {"/tokenizer", {{"type", "none"}, {"file", "x"}}, "tokenizer.file"},
      {"/tokenizer", {{"type", "sentencepiece"}}, "tokenizer.file"},
      {"/embedding/position_base", 10000, "embedding.position_base"},
      {"/embedding/position", "sinusoidal", "embedding.position_base"},
      {"/norm/type", "layer_norm", "norm.eps_mode"},
      {"/norm/type", "none", "norm.eps"},
      {"/norm", {{"type", "rms_norm"}, {"eps", 1}}, "norm.eps_mode"},
      {"/bias/type", "none", "bias.length"},
      {"/bias/type", "t5", "bias.num_buckets"},
      {"/bias/num_buckets", 32, "bias.num_buckets"},
      {"/bias/type", "rope_toeplitz", "bias.length"},
      {"/bias/base", 10000, "bias.base"},
      {"/quadratic/laplace_std", 1, "quadratic.laplace_std"},
  };
  for (const Mistake& mistake : mistakes) {
    EXPECT_THAT(ErrorOf(With(mistake.key, mistake.value)),
                HasSubstr(mistake.message));
  }
}

TEST(ConfigTest, RefusesFileNamesThatLeadOutOfTheModelDirectory) {
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."),
        std::string("../tokenizer.model"), std::string("/etc/passwd"),
        std::string("a/b"), std::string("a\\b"), std::string("a\0b", 3)}) {
    EXPECT_THAT(ErrorOf(With("/tokenizer/file", name)),
                HasSubstr("the name of a file in the same directory"))
        << name;
  }
}

TEST(ConfigTest, RefusesSettingsThatContradictEachOther) {
  json odd = With("/hidden_size", 255);
  odd["embedding"] = {
      {"scale", 1}, {"position", "sinusoidal"}, {"position_base", 10000}};
  EXPECT_THAT(ErrorOf(odd), HasSubstr("\"hidden_size\" is odd"));

  EXPECT_THAT(ErrorOf(With("/embedding/position", "learned")),
              HasSubstr("\"max_length\" is null"));

  json bytes = With("/vocab_size", 255);
  bytes["tokenizer"] = {{"type", "bytes"}};
  EXPECT_THAT(ErrorOf(bytes), HasSubstr("\"vocab_size\" is below 256"));

  json neither = With("/quadratic", nullptr);
  neither["linear"] = nullptr;
  EXPECT_THAT(ErrorOf(neither), HasSubstr("are both null"));

  EXPECT_THAT(ErrorOf(With("/quadratic", nullptr)),
              HasSubstr("\"bias.type\" is not \"none\""));

  json pairs = With("/query_key_size", 129);
  pairs["bias"] = {{"type", "rope_toeplitz"}, {"scale", 1}};
  EXPECT_THAT(ErrorOf(pairs), HasSubstr("\"query_key_size\" is odd"));

  json t5 = With("/bias", {{"type", "t5"},
                           {"scale", 1},
                           {"num_buckets", 32},
                           {"max_distance", 16}});
  EXPECT_THAT(ErrorOf(t5), HasSubstr("\"bias.max_distance\" is 16"));
}

TEST(ConfigTest, RefusesSizesWhoseProductIsOutOfAllReason) {
  json file = With("/vocab_size", 1 << 24);
  file["hidden_size"] = 1 << 24;
  EXPECT_THAT(ErrorOf(file), HasSubstr("\"vocab_size\" x \"hidden_size\""));

  file = With("/expanded_size", 1 << 24);
  file["hidden_size"] = 1 << 16;
  EXPECT_THAT(ErrorOf(file), HasSubstr("2 x \"expanded_size\""));

  file = With("/max_length", int64_t{1} << 40);
  file["embedding"]["position"] = "learned";
  EXPECT_THAT(ErrorOf(file), HasSubstr("\"max_length\" x \"hidden_size\""));
}

TEST(ConfigTest, RefusesWhatIsNotJson) {
  EXPECT_THAT(ErrorOf(std::string()), HasSubstr("is not valid JSON at byte"));
  EXPECT_THAT(ErrorOf(std::string("{\"a\": 1,}")), HasSubstr("JSON at byte 9"));
  EXPECT_THAT(ErrorOf(std::string("{} {}")), HasSubstr("is not valid JSON"));
  EXPECT_THAT(ErrorOf(std::string("{\"a\": NaN}")), HasSubstr("JSON"));
  EXPECT_THAT(ErrorOf(std::string("{\"a\": 1e999}")), HasSubstr("JSON"));
  EXPECT_THAT(ErrorOf(std::string("{\"\xff\": 1}")), HasSubstr("JSON"));
  EXPECT_THAT(ErrorOf(std::string("[]")),
              HasSubstr("the whole is an array; accepted is an object"));
  EXPECT_THAT(ErrorOf(std::string(100000, '[')), HasSubstr("is nested more"));
}

TEST(ConfigTest, RefusesAKeyThatIsThereTwice) {
  std::string text = kExample;
  text.insert(1, "\"vocab_size\": 4096,");
  EXPECT_THAT(ErrorOf(text), HasSubstr("\"vocab_size\" is there twice"));

  text = kExample;
  text.insert(text.find("\"layout\""), "\"base\": 1,");
  EXPECT_THAT(ErrorOf(text), HasSubstr("\"base\" is there twice"));
}

}  // namespace
}  // namespace flash
