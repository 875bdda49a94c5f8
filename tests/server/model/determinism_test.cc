// The same tokens give the same bits, whatever way they come and whoever else
// is there. Bits are compared, not numbers.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>

#include "kernels/cpu/isa.h"
#include "tests/server/model/model_runner.h"

namespace flash {
namespace {

bool SameBits(const LogitsRow& a, const LogitsRow& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

bool SameBits(const std::vector<LogitsRow>& a,
              const std::vector<LogitsRow>& b) {
  if (a.size() != b.size()) return false;
  for (size_t n = 0; n < a.size(); ++n) {
    if (!SameBits(a[n], b[n])) return false;
  }
  return true;
}

struct Numerics {
  std::string isa;
  DataType weights;
  DataType cache;
};

// The first seeds whose chunks are long enough, and whose layers are enough,
// for a chunk's end to be spread over many steps.
std::vector<uint64_t> SeedsWithASpreadEnd(size_t count) {
  std::vector<uint64_t> seeds;
  for (uint64_t seed = 1; seeds.size() < count; ++seed) {
    const ModelConfig config = RandomConfig(seed);
    if (config.chunk_size >= 16 && config.num_layers > 2 &&
        config.linear.has_value()) {
      seeds.push_back(seed);
    }
  }
  return seeds;
}

std::vector<uint64_t> Seeds() {
  std::vector<uint64_t> seeds = {2, 3, 5, 8, 13, 21, 34, 55};
  for (const uint64_t seed : SeedsWithASpreadEnd(2)) seeds.push_back(seed);
  return seeds;
}

class DeterminismTest : public testing::TestWithParam<Numerics> {
 protected:
  void SetUp() override {
    const auto kernels = cpu::FindKernels(GetParam().isa);
    if (absl::IsUnavailable(kernels.status())) {
      GTEST_SKIP() << kernels.status();
    }
  }

  static RunnerSettings Settings(int threads, int slots) {
    return {.isa = GetParam().isa,
            .threads = threads,
            .weights = GetParam().weights,
            .cache = GetParam().cache,
            .slots = slots};
  }

  // Models with every branch and norm, small and odd.
};

TEST_P(DeterminismTest, StepByStepEqualsPromptPassSplitAnywhereNearABoundary) {
  for (const uint64_t seed : Seeds()) {
    const ModelConfig config = RandomConfig(seed);
    const RandomModelFiles model(config, RandomOptions(seed));
    ModelRunner runner(model.files(), Settings(1, 2));
    const int64_t c = config.chunk_size;
    const auto ids = RandomIds(config, 2 * c + 1, seed);
    const std::vector<LogitsRow> steps = runner.Read(0, ids, 1);
    for (const int64_t length :
         {int64_t{1}, c - 1, c, c + 1, 2 * c, 2 * c + 1}) {
      if (length < 1) continue;
      const auto text = std::span(ids).first(length);
      const std::vector<LogitsRow> expected(steps.begin(),
                                            steps.begin() + length);
      for (const int64_t split :
           {int64_t{1}, c - 1, c, c + 1, 2 * c, 2 * c + 1}) {
        if (split < 1 || split > length) continue;
        // A prompt of `split` tokens, then a second one; and then a prompt
        // followed by single steps.
        for (const int64_t second : {int64_t{256}, int64_t{1}}) {
          auto logits = runner.Read(1, text.first(split), 256);
          for (auto& row : runner.Feed(1, text.subspan(split), second)) {
            logits.push_back(std::move(row));
          }
          EXPECT_TRUE(SameBits(logits, expected))
              << "seed " << seed << ", length " << length << ", split " << split
              << ", then runs of " << second;
        }
      }
    }
  }
}

TEST_P(DeterminismTest, StepByStepEqualsAPromptWhereAChunksEndIsSpread) {
  for (const uint64_t seed : SeedsWithASpreadEnd(4)) {
    const ModelConfig config = RandomConfig(seed);
    const RandomModelFiles model(config, RandomOptions(seed));
    ModelRunner runner(model.files(), Settings(1, 3));
    const int64_t c = config.chunk_size;
    const auto ids = RandomIds(config, 4 * c + 3, seed);
    const std::vector<LogitsRow> steps = runner.Read(0, ids, 1);
    EXPECT_TRUE(SameBits(runner.Read(1, ids, 256), steps)) << "seed " << seed;
    // Single steps up to some place after a boundary, a copy, then runs.
    for (int64_t after = 0; after < 11; ++after) {
      const auto text = std::span(ids);
      auto logits = runner.Read(1, text.first(2 * c + after), 1);
      runner.model().CopySlot(1, 2);
      for (auto& row : runner.Feed(2, text.subspan(2 * c + after), 3)) {
        logits.push_back(std::move(row));
      }
      EXPECT_TRUE(SameBits(logits, steps))
          << "seed " << seed << ", " << after << " after the boundary";
    }
  }
}

TEST_P(DeterminismTest, OneThreadEqualsTwoAndThree) {
  for (const uint64_t seed : Seeds()) {
    const ModelConfig config = RandomConfig(seed);
    const RandomModelFiles model(config, RandomOptions(seed));
    const auto ids = RandomIds(config, 3 * config.chunk_size + 1, seed);
    ModelRunner one(model.files(), Settings(1, 1));
    const auto expected = one.Read(0, ids, 5);
    for (const int threads : {2, 3}) {
      ModelRunner more(model.files(), Settings(threads, 1));
      EXPECT_TRUE(SameBits(more.Read(0, ids, 5), expected))
          << "seed " << seed << ", threads " << threads;
    }
  }
}

// One of the others: reads random text in runs of random sizes, and is gone
// after a random number of them, in whatever phase it is.
struct Stranger {
  std::vector<int32_t> tokens;
  int runs_left = 0;
};

TEST_P(DeterminismTest, AloneEqualsAmongOthersThatComeGoAndAreCancelled) {
  constexpr int kOthers = 31;
  for (const uint64_t seed : Seeds()) {
    const ModelConfig config = RandomConfig(seed);
    const RandomModelFiles model(config, RandomOptions(seed));
    const auto ids = RandomIds(config, 2 * config.chunk_size + 3, seed);
    ModelRunner runner(model.files(), Settings(2, kOthers + 1));
    const auto expected = runner.Read(0, ids, 1);

    std::mt19937_64 random(seed);
    std::map<int, Stranger> others;
    std::vector<LogitsRow> logits;
    std::vector<RunResult> results;
    const int mine = static_cast<int>(random() % (kOthers + 1));
    runner.model().Reset(mine);
    while (logits.size() < ids.size()) {
      std::vector<flash::Run> runs;
      int rows = 1;
      for (int slot = 0; slot <= kOthers; ++slot) {
        if (slot == mine) {
          runs.push_back({slot, std::span(ids).subspan(logits.size(), 1),
                          LogitsWanted::kLast});
          continue;
        }
        Stranger& other = others[slot];
        if (other.runs_left == 0) {
          runner.model().Reset(slot);
          other.runs_left = static_cast<int>(random() % 9);
          if (other.runs_left == 0) continue;  // nobody there in this step
        }
        --other.runs_left;
        const int64_t size = runner.RoomInChunk(slot, 1 + random() % 7);
        other.tokens = RandomIds(config, size, random());
        rows += static_cast<int>(size);
        if (rows > runner.model().max_rows()) break;
        runs.push_back(
            {slot, other.tokens,
             random() % 2 ? LogitsWanted::kLast : LogitsWanted::kNone});
      }
      std::shuffle(runs.begin(), runs.end(), random);
      ASSERT_TRUE(runner.model().Step(runs, results).ok());
      for (size_t r = 0; r < runs.size(); ++r) {
        if (runs[r].slot != mine) continue;
        logits.push_back(ModelRunner::Rows(results[r]).front());
      }
    }
    EXPECT_TRUE(SameBits(logits, expected)) << "seed " << seed;
  }
}

TEST_P(DeterminismTest, ACopiedSlotGoesOnAsTheOriginal) {
  for (const uint64_t seed : Seeds()) {
    const ModelConfig config = RandomConfig(seed);
    const RandomModelFiles model(config, RandomOptions(seed));
    const int64_t c = config.chunk_size;
    const auto ids = RandomIds(config, 4 * c, seed);
    ModelRunner runner(model.files(), Settings(1, 3));
    for (const int64_t at : {int64_t{1}, c - 1, c, c + 1, 2 * c + c / 2}) {
      if (at < 1) continue;
      const auto text = std::span(ids).first(at);
      const auto rest = std::span(ids).subspan(at);
      runner.Read(0, text, 3);
      runner.Read(2, ids, 256);  // what stood in the slot before
      runner.model().CopySlot(0, 2);
      EXPECT_EQ(runner.model().position(2), at);
      EXPECT_TRUE(SameBits(runner.Feed(2, rest, 4), runner.Feed(0, rest, 1)))
          << "seed " << seed << ", copied at " << at;
    }
  }
}

void Plant(std::byte* begin, size_t bytes, DataType type) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (size_t at = 0; at < bytes; at += SizeOf(type)) {
    if (type == DataType::kFloat32) {
      std::memcpy(begin + at, &nan, sizeof(nan));
    } else {
      const uint16_t half = 0x7fc0;
      std::memcpy(begin + at, &half, sizeof(half));
    }
  }
}

// Every row of the open chunk that no token of this chunk has written. Just
// after a chunk none is stale: some layers have yet to fold its end.
void PlantInStaleRows(const FlashModel& model, int slot) {
  const ModelConfig& config = model.config();
  const int64_t used = model.position(slot) % config.chunk_size;
  if (used == 0) return;
  // Nor is the very end of the chunk before in the first steps of the next.
  const int64_t end = config.chunk_size - (used < 9 ? kMaxPutOff : 0);
  if (used >= end) return;
  for (int64_t l = 0; l < config.num_layers; ++l) {
    const LayerState& state = model.states().layer(static_cast<int>(l));
    // Elements [begin, end) of a tensor.
    const auto plant = [&](std::byte* tensor, int64_t begin, int64_t end) {
      if (tensor == nullptr) return;
      const int64_t size = SizeOf(state.cache);
      Plant(tensor + slot * state.slot_stride + begin * size,
            (end - begin) * size, state.cache);
    };
    if (state.shift != nullptr) {
      const int64_t row = Padded((config.hidden_size + 1) / 2) * sizeof(float);
      std::byte* ring =
          reinterpret_cast<std::byte*>(state.shift) + slot * state.slot_stride;
      for (int64_t r = 0; r < kShiftRows; ++r) {
        if (r == (model.position(slot) - 1) % kShiftRows) continue;
        Plant(ring + r * row, row, DataType::kFloat32);
      }
    }
    const int64_t chunk = config.chunk_size;
    const int64_t s = Padded(config.query_key_size);
    plant(state.lin_k, used * s, end * s);
    const Panels values = {chunk, Padded(config.expanded_size)};
    for (int64_t col = 0; col < values.cols; col += Panels::kWidth) {
      const int64_t width = values.Width(col);
      plant(state.value, values.Begin(col) + used * width,
            values.Begin(col) + end * width);
    }
    const Panels keys = {config.query_key_size, Padded(chunk)};  // transposed
    for (int64_t position = used; position < end; ++position) {
      const int64_t panel = position / Panels::kWidth * Panels::kWidth;
      for (int64_t c = 0; c < keys.rows; ++c) {
        const int64_t at =
            keys.Begin(panel) + c * keys.Width(panel) + (position - panel);
        plant(state.quad_k, at, at + 1);
      }
    }
  }
}

TEST_P(DeterminismTest, NothingIsReadOfRowsThatAreStale) {
  for (const uint64_t seed : Seeds()) {
    const ModelConfig config = RandomConfig(seed);
    const RandomModelFiles model(config, RandomOptions(seed));
    const auto ids = RandomIds(config, 3 * config.chunk_size + 2, seed);
    ModelRunner runner(model.files(), Settings(1, 2));
    for (const int64_t run : {int64_t{1}, int64_t{5}}) {
      const auto expected = runner.Read(0, ids, run);
      runner.model().Reset(1);
      std::vector<LogitsRow> logits;
      while (logits.size() < ids.size()) {
        PlantInStaleRows(runner.model(), 1);
        const int64_t size = runner.RoomInChunk(
            1, std::min<int64_t>(run, ids.size() - logits.size()));
        for (auto& row :
             runner.Step(1, std::span(ids).subspan(logits.size(), size))) {
          logits.push_back(std::move(row));
        }
      }
      EXPECT_TRUE(SameBits(logits, expected)) << "seed " << seed;
    }
  }
}

// A token and then drafts: some right ones, and perhaps wrong ones.
struct Drafts {
  std::vector<int32_t> tokens;
  int64_t num_right = 0;
};

Drafts MakeDrafts(std::span<const int32_t> ids, int64_t room, int32_t vocab,
                  std::mt19937_64& random) {
  room = std::min(room, static_cast<int64_t>(ids.size()) - 1);
  const int64_t drafted = random() % (room + 1);
  Drafts drafts = {{ids[0]}, static_cast<int64_t>(random() % (drafted + 1))};
  for (int64_t n = 1; n <= drafted; ++n) {
    const int32_t off = n <= drafts.num_right ? 0 : 1 + random() % (vocab - 1);
    drafts.tokens.push_back((ids[n] + off) % vocab);
  }
  return drafts;
}

TEST_P(DeterminismTest, WhatWasDraftedChangesNoBitHoweverMuchOfItStays) {
  int64_t num_drafted = 0;
  for (const uint64_t seed : Seeds()) {
    const ModelConfig config = RandomConfig(seed);
    const RandomModelFiles model(config, RandomOptions(seed));
    const auto ids = RandomIds(config, 5 * config.chunk_size + 2, seed);
    ModelRunner runner(model.files(), Settings(2, 2));
    const auto expected = runner.Read(0, ids, 1);
    std::mt19937_64 random(seed);
    for (int round = 0; round < 3; ++round) {
      runner.model().Reset(1);
      std::vector<LogitsRow> logits;
      while (logits.size() < ids.size()) {
        PlantInStaleRows(runner.model(), 1);
        const auto left = std::span(ids).subspan(logits.size());
        const Drafts drafts =
            MakeDrafts(left, runner.RoomForDrafts(1),
                       static_cast<int32_t>(config.vocab_size), random);
        if (drafts.tokens.size() == 1) {
          logits.push_back(runner.Step(1, left.first(1)).front());
          continue;
        }
        num_drafted += static_cast<int64_t>(drafts.tokens.size()) - 1;
        auto rows = runner.StepWithDrafts(1, drafts.tokens);
        // Perhaps fewer than could stay, perhaps none at all.
        const int64_t kept = random() % (2 + drafts.num_right);
        runner.model().Keep(1, kept);
        ASSERT_EQ(runner.model().position(1),
                  static_cast<int64_t>(logits.size()) + kept);
        for (int64_t n = 0; n < kept; ++n) {
          logits.push_back(std::move(rows[n]));
        }
      }
      EXPECT_TRUE(SameBits(logits, expected)) << "seed " << seed;
    }
  }
  EXPECT_GT(num_drafted, 1000);
}

std::span<std::byte> SlotBytes(const FlashModel& model, int slot) {
  // Layer 0's first tensor is where slot 0 begins.
  const LayerState& first = model.states().layer(0);
  std::byte* base = first.u != nullptr ? first.u : first.quad_k;
  return {base + slot * first.slot_stride, first.slot_stride};
}

TEST_P(DeterminismTest, AResetSlotHoldsNothingOfTheRequestBefore) {
  const ModelConfig config = RandomConfig(3);
  const RandomModelFiles model(config, RandomOptions(3));
  ModelRunner runner(model.files(), Settings(1, 3));
  const auto ids = RandomIds(config, 2 * config.chunk_size + 1, 1);
  runner.Read(1, ids, 256);
  const auto bytes = SlotBytes(runner.model(), 1);
  const auto is_zero = [](std::byte b) { return b == std::byte{0}; };
  ASSERT_FALSE(std::all_of(bytes.begin(), bytes.end(), is_zero));
  runner.model().Reset(1);
  EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), is_zero));
  EXPECT_EQ(runner.model().position(1), 0);
}

TEST_P(DeterminismTest, ANumberThatIsNotFiniteEndsItsOwnRunOnly) {
  const ModelConfig config = RandomConfig(5);
  const RandomModelFiles model(config, RandomOptions(5));
  ModelRunner runner(model.files(), Settings(2, 2));
  const auto ids = RandomIds(config, config.chunk_size + 2, 1);
  const auto expected = runner.Read(0, ids, 1);
  runner.Read(0, std::span(ids).first(ids.size() - 1), 1);
  runner.Read(1, std::span(ids).first(ids.size() - 1), 1);
  const auto bytes = SlotBytes(runner.model(), 1);
  Plant(bytes.data(), bytes.size(), GetParam().cache);
  std::vector<RunResult> results;
  const auto last = std::span(ids).last(1);
  const std::vector<flash::Run> runs = {{1, last, LogitsWanted::kLast},
                                        {0, last, LogitsWanted::kLast}};
  ASSERT_TRUE(runner.model().Step(runs, results).ok());
  EXPECT_TRUE(results[0].faulted);
  EXPECT_FALSE(results[1].faulted);
  EXPECT_TRUE(SameBits(ModelRunner::Rows(results[1]).front(), expected.back()));
}

std::vector<Numerics> EveryNumerics() {
  std::vector<Numerics> all;
  for (const char* isa : {"avx512bf16", "avx512", "avx2", "portable"}) {
    all.push_back({isa, DataType::kFloat32, DataType::kFloat32});
    all.push_back({isa, DataType::kBFloat16, DataType::kBFloat16});
    all.push_back({isa, DataType::kInt8, DataType::kBFloat16});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Numerics, DeterminismTest,
                         testing::ValuesIn(EveryNumerics()),
                         [](const auto& info) {
                           const DataType type = info.param.weights;
                           return info.param.isa +
                                  (type == DataType::kFloat32    ? "Float32"
                                   : type == DataType::kBFloat16 ? "BFloat16"
                                                                 : "Int8");
                         });

}  // namespace
}  // namespace flash
