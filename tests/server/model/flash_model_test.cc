// The network on the CPU against the network in double, for every setting of
// the format and every instruction set.

#include "server/model/flash_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/cpu/isa.h"
#include "tests/reference/reference.h"
#include "tests/server/model/model_runner.h"

namespace flash {
namespace {

// The format asks for 2e-4 of float32 serving; what is seen is about 2e-5.
constexpr double kTolerance = 2e-4;

std::vector<double> Logprobs(const std::vector<LogitsRow>& logits,
                             std::span<const int32_t> ids) {
  std::vector<double> logprobs;
  for (size_t t = 0; t + 1 < ids.size(); ++t) {
    const std::vector<double> row(logits[t].begin(), logits[t].end());
    logprobs.push_back(LogSoftmax(row)[ids[t + 1]]);
  }
  return logprobs;
}

double LargestDifference(const std::vector<double>& a,
                         const std::vector<double>& b) {
  FLASH_CHECK(a.size() == b.size());
  double largest = 0;
  for (size_t n = 0; n < a.size(); ++n) {
    // A NaN is a difference too.
    if (!(std::abs(a[n] - b[n]) <= largest)) largest = std::abs(a[n] - b[n]);
  }
  return largest;
}

class FlashModelTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto kernels = cpu::FindKernels(GetParam());
    if (absl::IsUnavailable(kernels.status())) {
      GTEST_SKIP() << kernels.status();
    }
  }
};

TEST_P(FlashModelTest, AgreesWithTheReferenceForEverySettingOfTheFormat) {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    const ModelConfig config = RandomConfig(seed);
    const RandomModelFiles model(config, RandomOptions(seed));
    const auto reference = Reference::Create(config, model.files().checkpoint);
    ASSERT_TRUE(reference.ok()) << reference.status();
    const int64_t length = 3 * config.chunk_size + 1;
    const auto ids = RandomIds(config, length, seed);
    ModelRunner runner(model.files(), {.isa = GetParam(), .threads = 2});
    const int64_t run = 1 + static_cast<int64_t>(seed % 40);
    EXPECT_LE(LargestDifference(Logprobs(runner.Read(0, ids, run), ids),
                                reference->Logprobs(ids)),
              kTolerance)
        << "seed " << seed << ", runs of " << run;
  }
}

// Every directory of tests/ that holds a model with its right answers.
std::vector<std::string> DirectoriesWithAnswers() {
  std::vector<std::string> directories;
  for (const char* root : {"/tests/cases", "/tests/goldens"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(
             std::string(FLASH_SOURCE_DIR) + root)) {
      if (entry.path().filename() == "expected.json") {
        directories.push_back(entry.path().parent_path());
      }
    }
  }
  return directories;
}

TEST_P(FlashModelTest, GivesTheRightAnswersOfTheModelsThatHaveThem) {
  const std::vector<std::string> directories = DirectoriesWithAnswers();
  ASSERT_GE(directories.size(), 9u);
  for (const std::string& directory : directories) {
    const auto files = ModelFiles::Open(directory);
    ASSERT_TRUE(files.ok()) << files.status();
    std::ifstream answers(directory + "/expected.json");
    const auto expected = nlohmann::json::parse(answers);
    const std::vector<int32_t> ids = expected["ids"];
    ModelRunner runner(*files, {.isa = GetParam(), .threads = 2});
    EXPECT_LE(LargestDifference(Logprobs(runner.Read(0, ids, 7), ids),
                                expected["logprobs"]),
              kTolerance)
        << directory;
    // Greedy, token by token after the prompt.
    std::vector<int32_t> text = expected["greedy"]["prompt_ids"];
    const std::vector<int32_t> right = expected["greedy"]["generated_ids"];
    LogitsRow logits = runner.Read(1, text, 256).back();
    std::vector<int32_t> generated;
    while (generated.size() < right.size()) {
      const auto best = std::max_element(logits.begin(), logits.end());
      generated.push_back(static_cast<int32_t>(best - logits.begin()));
      logits = runner.Feed(1, std::span(&generated.back(), 1), 1).back();
    }
    EXPECT_EQ(generated, right) << directory;
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, FlashModelTest,
                         testing::Values("avx512bf16", "avx512", "avx2",
                                         "portable"),
                         [](const auto& info) { return info.param; });

TEST(ModelFilesTest, SayWhichFileIsMissing) {
  const TemporaryDirectory directory;
  const absl::Status status = ModelFiles::Open(directory.path()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("config.json"));
}

TEST(FlashModelMemoryTest, HasTheSlotsThatAreChosenByTheirSize) {
  const RandomModelFiles model(RandomConfig(1), RandomOptions(1));
  ThreadPool pool(1);
  const auto backend = *MakeCpuBackend(pool, "auto");
  StateLayout seen;
  absl::StatusOr<int> choice = 5;
  const auto create = [&] {
    return FlashModel::Create(*backend, model.files().config,
                              model.files().weights,
                              {.choose_slots = [&](const StateLayout& layout) {
                                seen = layout;
                                return choice;
                              }});
  };
  const auto created = create();
  ASSERT_TRUE(created.ok()) << created.status();
  EXPECT_EQ((*created)->num_slots(), 5);
  EXPECT_EQ((*created)->slot_bytes(), seen.slot_bytes);
  choice = absl::ResourceExhaustedError("no room");
  EXPECT_EQ(create().status(), choice.status());
}

TEST(ModelFilesTest, ADirectoryInPlaceOfAFileIsAnError) {
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory.path() + "/config.json");
  EXPECT_EQ(ModelFiles::Open(directory.path()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace flash
