// The reference against numbers that other programs have computed: without
// this, it could be wrong together with everything that is compared with it.

#include "tests/reference/reference.h"

#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace flash {
namespace {

// What other programs computed in double precision and printed with six digits
// after the point.
constexpr double kTolerance = 1e-5;
// What they computed in single precision, through all layers.
constexpr double kSinglePrecisionTolerance = 5e-5;

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Directories that hold a model and an expected.json.
std::vector<std::string> ModelsWithAnswers() {
  const std::filesystem::path tests =
      std::filesystem::path(FLASH_SOURCE_DIR) / "tests";
  std::vector<std::string> found;
  for (const char* folder : {"cases", "goldens"}) {
    if (!exists(tests / folder)) continue;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(tests / folder)) {
      if (entry.path().filename() != "expected.json") continue;
      const std::filesystem::path directory = entry.path().parent_path();
      // Beside the answers, or made by the importer from another format.
      for (const auto& model : {directory, directory / "imported"}) {
        if (exists(model / "config.json")) found.push_back(model);
      }
    }
  }
  return found;
}

nlohmann::json Answers(const std::filesystem::path& model) {
  const auto beside = model / "expected.json";
  return nlohmann::json::parse(
      ReadFile(exists(beside) ? beside : model / ".." / "expected.json"));
}

class ReferenceTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto checkpoint = Checkpoint::Open(GetParam());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    const auto config =
        ParseModelConfig(ReadFile(GetParam() + "/config.json"), "config.json");
    ASSERT_TRUE(config.ok()) << config.status();
    auto reference = Reference::Create(*config, *checkpoint);
    ASSERT_TRUE(reference.ok()) << reference.status();
    reference_.emplace(*std::move(reference));
    answers_ = Answers(GetParam());
  }

  std::optional<Reference> reference_;
  nlohmann::json answers_;
};

TEST_P(ReferenceTest, GivesEachTokenTheExpectedProbability) {
  const auto ids = answers_.at("ids").get<std::vector<int32_t>>();
  const auto expected = answers_.at("logprobs").get<std::vector<double>>();
  const bool single = answers_.contains("source");  // a package's output
  const double tolerance = single ? kSinglePrecisionTolerance : kTolerance;
  EXPECT_THAT(reference_->Logprobs(ids),
              testing::Pointwise(testing::DoubleNear(tolerance), expected));
}

TEST_P(ReferenceTest, ContinuesThePromptAsExpected) {
  const auto prompt =
      answers_.at("greedy").at("prompt_ids").get<std::vector<int32_t>>();
  const auto expected =
      answers_.at("greedy").at("generated_ids").get<std::vector<int32_t>>();
  EXPECT_EQ(reference_->Greedy(prompt, static_cast<int>(expected.size())),
            expected);
}

INSTANTIATE_TEST_SUITE_P(
    Models, ReferenceTest, testing::ValuesIn(ModelsWithAnswers()),
    [](const auto& info) {
      std::string name = std::filesystem::relative(
          info.param, std::filesystem::path(FLASH_SOURCE_DIR) / "tests");
      for (char& c : name) {
        if (!std::isalnum(c)) c = '_';
      }
      return name;
    });

TEST(ReferenceTest, FindsTheModelsWhoseAnswersAreKnown) {
  EXPECT_GE(ModelsWithAnswers().size(), 2u);
}

}  // namespace
}  // namespace flash
