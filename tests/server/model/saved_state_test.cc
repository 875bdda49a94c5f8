// A slot that is saved and loaded again, here or elsewhere, goes on bit by bit
// as if nothing had happened.

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <map>
#include <set>

#include "kernels/cpu/isa.h"
#include "tests/server/model/model_runner.h"

namespace flash {
namespace {

bool SameBits(const std::vector<LogitsRow>& a,
              const std::vector<LogitsRow>& b) {
  if (a.size() != b.size()) return false;
  for (size_t n = 0; n < a.size(); ++n) {
    if (a[n].size() != b[n].size() ||
        std::memcmp(a[n].data(), b[n].data(), a[n].size() * sizeof(float)) !=
            0) {
      return false;
    }
  }
  return true;
}

struct Numerics {
  std::string isa;
  DataType weights;
  DataType cache;
};

// Some with every branch and norm, and some whose chunks are long enough for
// their end to be spread over many steps.
std::vector<uint64_t> Seeds() {
  std::vector<uint64_t> seeds = {2, 3, 5, 8, 13};
  for (uint64_t seed = 1; seeds.size() < 7; ++seed) {
    const ModelConfig config = RandomConfig(seed);
    if (config.chunk_size >= 16 && config.num_layers > 2 &&
        config.linear.has_value()) {
      seeds.push_back(seed);
    }
  }
  return seeds;
}

class SavedStateTest : public testing::TestWithParam<Numerics> {
 protected:
  void SetUp() override {
    if (absl::IsUnavailable(cpu::FindKernels(GetParam().isa).status())) {
      GTEST_SKIP() << "this machine has no " << GetParam().isa;
    }
  }

  static RunnerSettings Settings(int slots) {
    return {.isa = GetParam().isa,
            .weights = GetParam().weights,
            .cache = GetParam().cache,
            .slots = slots};
  }
};

TEST_P(SavedStateTest, GoesOnBitByBitInAnotherSlotOfAnotherServer) {
  for (const uint64_t seed : Seeds()) {
    const ModelConfig config = RandomConfig(seed);
    const RandomModelFiles model(config, {.seed = seed});
    const int64_t chunk = config.chunk_size;
    const std::vector<int32_t> ids = RandomIds(config, 3 * chunk + 2, seed);
    ModelRunner here(model.files(), Settings(2));
    ModelRunner elsewhere(model.files(), Settings(3));
    const std::vector<LogitsRow> undisturbed = here.Read(0, ids, 1);
    here.model().Reset(1);
    for (int64_t k = 0; k <= 2 * chunk + 1; ++k) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", after " << k);
      const std::string state = *here.model().Save(1);
      // The slot it is loaded into belonged to somebody else.
      const int slot = static_cast<int>(k % 3);
      elsewhere.Read(slot, std::span(ids).last(chunk + k % chunk), chunk);
      ASSERT_TRUE(elsewhere.model().Load(slot, state).ok());
      EXPECT_EQ(elsewhere.model().position(slot), k);
      const int64_t run_size = k % 2 == 0 ? 1 : chunk;
      ASSERT_TRUE(
          SameBits(elsewhere.Feed(slot, std::span(ids).subspan(k), run_size),
                   {undisturbed.begin() + k, undisturbed.end()}));
      // And the one that was saved, which has gone through every save so far.
      ASSERT_TRUE(SameBits(here.Step(1, std::span(ids).subspan(k, 1)),
                           {undisturbed[k]}));
    }
  }
}

TEST_P(SavedStateTest, SavedAgainAtOnceIsTheSameState) {
  const uint64_t seed = Seeds().back();
  const ModelConfig config = RandomConfig(seed);
  const RandomModelFiles model(config, {.seed = seed});
  const std::vector<int32_t> ids = RandomIds(config, 2 * config.chunk_size, 1);
  ModelRunner runner(model.files(), Settings(2));
  runner.model().Reset(0);
  for (const int32_t id : ids) {
    runner.Step(0, std::span(&id, 1));
    const std::string state = *runner.model().Save(0);
    ASSERT_TRUE(runner.model().Load(1, state).ok());
    EXPECT_EQ(*runner.model().Save(1), state);
  }
}

TEST_P(SavedStateTest, AtABoundaryIsAFunctionOfTheTokensAndOfOneSize) {
  for (const uint64_t seed : Seeds()) {
    const ModelConfig config = RandomConfig(seed);
    const RandomModelFiles model(config, {.seed = seed});
    const int64_t chunk = config.chunk_size;
    const std::vector<int32_t> ids = RandomIds(config, 4 * chunk, seed);
    ModelRunner runner(model.files(), Settings(3));
    std::set<size_t> sizes;
    for (int64_t chunks = 1; chunks <= 4; ++chunks) {
      const auto text = std::span(ids).first(chunks * chunk);
      runner.Read(0, text, 1);
      runner.Read(1, text, chunk);
      runner.Read(2, text, 3);
      const std::string state = *runner.model().Save(0);
      EXPECT_EQ(*runner.model().Save(1), state) << "seed " << seed;
      EXPECT_EQ(*runner.model().Save(2), state) << "seed " << seed;
      sizes.insert(state.size());
    }
    const size_t size = runner.model().layout().boundary_bytes;
    EXPECT_EQ(sizes, std::set<size_t>({size})) << "seed " << seed;
  }
}

TEST_P(SavedStateTest, OfDraftsThatWereTakenBackNothingIsLeft) {
  for (const uint64_t seed : Seeds()) {
    const ModelConfig config = RandomConfig(seed);
    const RandomModelFiles model(config, {.seed = seed});
    const int64_t chunk = config.chunk_size;
    const std::vector<int32_t> ids = RandomIds(config, 3 * chunk, seed);
    const std::vector<int32_t> wrong = RandomIds(config, 32, seed + 1);
    ModelRunner runner(model.files(), Settings(2));
    const std::vector<LogitsRow> undisturbed = runner.Read(1, ids, 1);
    runner.model().Reset(0);
    for (int64_t k = 0; k < 2 * chunk; ++k) {
      const int64_t room = runner.RoomForDrafts(0);
      if (room > 0) {
        std::vector<int32_t> run = {ids[k]};
        run.insert(run.end(), wrong.begin(), wrong.begin() + room);
        runner.StepWithDrafts(0, run);
        runner.model().Keep(0, 1);
      } else {
        runner.Step(0, std::span(ids).subspan(k, 1));
      }
      if (k % 3 != 0) continue;
      ASSERT_TRUE(runner.model().Load(1, *runner.model().Save(0)).ok());
      ASSERT_TRUE(SameBits(runner.Feed(1, std::span(ids).subspan(k + 1), chunk),
                           {undisturbed.begin() + k + 1, undisturbed.end()}))
          << "seed " << seed << ", after " << k + 1;
    }
  }
}

TEST_P(SavedStateTest, WhatSaveCannotHaveWrittenIsRefusedAndTheSlotEmpty) {
  const uint64_t seed = Seeds().back();
  const ModelConfig config = RandomConfig(seed);
  const RandomModelFiles model(config, {.seed = seed});
  ModelRunner runner(model.files(), Settings(1));
  const std::vector<int32_t> ids = RandomIds(config, config.chunk_size + 3, 1);
  const std::vector<LogitsRow> undisturbed = runner.Read(0, ids, 1);
  const std::string good = *runner.model().Save(0);
  const int64_t end = config.chunk_size + 3;
  EXPECT_TRUE(runner.model().CheckState(good, end).ok());
  for (const int64_t other : {end - 1, end + 1, int64_t{0}}) {
    EXPECT_TRUE(
        absl::IsInvalidArgument(runner.model().CheckState(good, other)));
  }
  std::string far = good;
  const int64_t positions[] = {-1, std::numeric_limits<int64_t>::min(),
                               std::numeric_limits<int64_t>::max()};
  std::vector<std::string> bad = {"", good.substr(0, 7), good + '\0',
                                  good.substr(0, good.size() - 1)};
  for (const int64_t position : positions) {
    std::memcpy(far.data(), &position, sizeof(position));
    bad.push_back(far);
  }
  std::string overfull = good;
  const uint32_t folded = 4;  // of 3
  std::memcpy(overfull.data() + sizeof(int64_t), &folded, sizeof(folded));
  bad.push_back(overfull);
  for (const std::string& state : bad) {
    const absl::Status status = runner.model().Load(0, state);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_EQ(runner.model().CheckState(state, end), status);
    EXPECT_EQ(runner.model().position(0), 0);
    EXPECT_TRUE(SameBits(runner.Feed(0, ids, 1), undisturbed));
  }
}

TEST_P(SavedStateTest, TheFormatNamesWhatTheBytesDependOn) {
  std::map<std::string, std::string> seen;
  for (const uint64_t seed : Seeds()) {
    const RandomModelFiles model(RandomConfig(seed), {.seed = seed});
    ModelRunner runner(model.files(), Settings(1));
    const ModelConfig& config = model.files().config;
    std::vector<int32_t> ids = RandomIds(config, config.chunk_size + 1, 1);
    runner.Read(0, ids, 1);
    EXPECT_NE(runner.model().state_format(), "");
    EXPECT_EQ(runner.model().state_format().find('\n'), std::string::npos);
    seen[runner.model().state_format()] = *runner.model().Save(0);
  }
  EXPECT_EQ(seen.size(), Seeds().size());
}

INSTANTIATE_TEST_SUITE_P(
    OnEveryInstructionSet, SavedStateTest,
    testing::Values(
        Numerics{"avx512bf16", DataType::kFloat32, DataType::kFloat32},
        Numerics{"avx512bf16", DataType::kBFloat16, DataType::kBFloat16},
        Numerics{"avx512bf16", DataType::kInt8, DataType::kBFloat16},
        Numerics{"avx512", DataType::kBFloat16, DataType::kBFloat16},
        Numerics{"avx2", DataType::kBFloat16, DataType::kBFloat16},
        Numerics{"portable", DataType::kFloat32, DataType::kBFloat16}),
    [](const auto& info) {
      return info.param.isa + "_" +
             (info.param.weights == DataType::kFloat32    ? "float32"
              : info.param.weights == DataType::kBFloat16 ? "bfloat16"
                                                          : "int8") +
             (info.param.cache == DataType::kFloat32 ? "_float32"
                                                     : "_bfloat16");
    });

}  // namespace
}  // namespace flash
