// FoldChunks() against its definition in double, and the same bits however a
// chunk is cut into folds.

#include <cmath>
#include <vector>

#include "tests/kernels/random_layer.h"

namespace flash {
namespace {

// Of the sum of the absolute values of what is added up: a chain of up to 132
// roundings, which do not all go one way.
constexpr double kTolerance = 4e-6;

constexpr DataType kCaches[] = {DataType::kFloat32, DataType::kBFloat16};

Attention Settings(int64_t s, int64_t e, int64_t c) {
  return {.query_key_size = s, .expanded_size = e, .chunk_size = c};
}

Workload WorkloadOf(const Attention& attention) {
  return {.max_rows = 1,
          .query_key_size = attention.query_key_size,
          .chunk_size = attention.chunk_size};
}

// Slots with a random sum and U each, and keys and values at [first, last).
Slots SlotsWithPositions(const Attention& attention, DataType cache,
                         int num_slots, int64_t first, int64_t last) {
  Slots slots(attention, cache, num_slots);
  for (int slot = 0; slot < num_slots; ++slot) {
    slots.FillRandom(Slots::kU, slot, 0, attention.query_key_size);
    slots.FillRandom(Slots::kSum, slot, 0, attention.query_key_size);
    slots.FillRandom(Slots::kLinK, slot, first, last);
    slots.FillRandom(Slots::kValue, slot, first, last);
  }
  return slots;
}

class FoldChunksTest : public BackendTest {
 protected:
  static void ExpectSum(const Attention& attention, const Slots& before,
                        const Slots& after, const Fold& fold) {
    for (int64_t k = 0; k < attention.query_key_size; ++k) {
      for (int64_t col = 0; col < attention.expanded_size; ++col) {
        double sum = before.Get(Slots::kSum, fold.slot, k, col);
        double magnitude = std::fabs(sum);
        for (int64_t j = fold.first; j < fold.last; ++j) {
          const double term =
              double{before.Get(Slots::kLinK, fold.slot, j, k)} *
              before.Get(Slots::kValue, fold.slot, j, col);
          sum += term;
          magnitude += std::fabs(term);
        }
        EXPECT_NEAR(after.Get(Slots::kSum, fold.slot, k, col), sum,
                    kTolerance * magnitude);
      }
    }
  }

  void ExpectTheDefinition(const Attention& attention, DataType cache) {
    const TestBackend backend = Make(WorkloadOf(attention));
    const int64_t c = attention.chunk_size;
    // What lies outside the fold is NaN.
    const Fold fold = {.slot = 1,
                       .first = static_cast<int32_t>(c / 3),
                       .last = static_cast<int32_t>(c - c / 5)};
    const Slots before =
        SlotsWithPositions(attention, cache, 3, fold.first, fold.last);
    const Slots after =
        SlotsWithPositions(attention, cache, 3, fold.first, fold.last);
    backend->FoldChunks(attention, after.state(), {{fold}});
    ExpectSum(attention, before, after, fold);
    for (const auto tensor :
         {Slots::kU, Slots::kLinK, Slots::kValue, Slots::kShift}) {
      EXPECT_EQ(after.Bytes(tensor, 1), before.Bytes(tensor, 1));
    }
    for (const int slot : {0, 2}) {
      EXPECT_EQ(after.Bytes(slot), before.Bytes(slot));
    }
  }
};

TEST_P(FoldChunksTest, AddProductsToTheSumAndChangeNothingElse) {
  for (const DataType cache : kCaches) {
    for (const int64_t s : {1, 2, 16, 17}) {
      for (const int64_t e : {1, 15, 16, 33, 130}) {
        ExpectTheDefinition(Settings(s, e, 7), cache);
      }
    }
    // Around the rows of the sum that a block of a card has.
    for (const int64_t s : {64, 65, 150}) {
      ExpectTheDefinition(Settings(s, 70, 40), cache);
    }
    // Around the positions that are widened at once.
    for (const int64_t c : {1, 2, 70, 127, 128, 160, 165}) {
      ExpectTheDefinition(Settings(13, 17, c), cache);
    }
  }
}

TEST_P(FoldChunksTest, CloseByRoundingTheSumToU) {
  for (const DataType cache : kCaches) {
    const Attention attention = Settings(17, 33, 5);
    const TestBackend backend = Make(WorkloadOf(attention));
    const Slots slots = SlotsWithPositions(attention, cache, 2, 0, 5);
    backend->FoldChunks(
        attention, slots.state(),
        {{Fold{.slot = 1, .first = 2, .last = 5, .closes = true}}});
    for (int64_t k = 0; k < 17; ++k) {
      for (int64_t col = 0; col < Padded(33); ++col) {
        EXPECT_EQ(slots.Get(Slots::kU, 1, k, col),
                  RoundedTo(cache, slots.Get(Slots::kSum, 1, k, col)));
      }
    }
  }
}

TEST_P(FoldChunksTest, MayCloseWhereNothingIsLeftToAdd) {
  const Attention attention = Settings(3, 16, 4);
  const TestBackend backend = Make(WorkloadOf(attention));
  const Slots slots =
      SlotsWithPositions(attention, DataType::kFloat32, 1, 0, 0);
  const std::vector<std::byte> sum = slots.Bytes(Slots::kSum, 0);
  backend->FoldChunks(
      attention, slots.state(),
      {{Fold{.slot = 0, .first = 4, .last = 4, .closes = true}}});
  EXPECT_EQ(slots.Bytes(Slots::kSum, 0), sum);
  EXPECT_EQ(slots.Bytes(Slots::kU, 0), sum);
}

TEST_P(FoldChunksTest, GiveTheSameBitsHoweverTheChunkIsCut) {
  const Attention attention = Settings(17, 50, 67);
  const TestBackend backend = Make(WorkloadOf(attention));
  for (const DataType cache : kCaches) {
    const auto fold = [&](const std::vector<int32_t>& edges) {
      const Slots slots = SlotsWithPositions(attention, cache, 1, 0, 67);
      int32_t first = 0;
      for (const int32_t edge : edges) {
        backend->FoldChunks(attention, slots.state(),
                            {{Fold{.slot = 0,
                                   .first = first,
                                   .last = edge,
                                   .closes = edge == 67}}});
        first = edge;
      }
      return slots.Bytes(0);
    };
    const std::vector<std::byte> whole = fold({67});
    std::vector<int32_t> every_position;
    for (int32_t edge = 1; edge <= 67; ++edge) {
      every_position.push_back(edge);
      EXPECT_EQ(fold({edge, 67}), whole) << "cut at " << edge;
    }
    EXPECT_EQ(fold(every_position), whole);
    EXPECT_EQ(fold({16, 32, 48, 64, 67}), whole);
  }
}

TEST_P(FoldChunksTest, GiveEachSlotTheSameBitsAloneAndInACrowd) {
  const Attention attention = Settings(13, 130, 40);
  ExpectSameBitsAloneAndInACrowd(
      WorkloadOf(attention), 9,
      [&](Backend& backend, const std::vector<int>& places) {
        const Slots slots =
            SlotsWithPositions(attention, DataType::kBFloat16, 9, 0, 40);
        std::vector<Fold> folds;
        for (const int place : places) {
          folds.push_back({.slot = place,
                           .first = place,
                           .last = 36 + place % 5,
                           .closes = place % 5 == 4});
        }
        backend.FoldChunks(attention, slots.state(), folds);
        std::vector<Bits> bits;
        for (const int place : places) {
          const std::vector<std::byte> state = slots.Bytes(place);
          bits.emplace_back(state.size());
          for (size_t n = 0; n < state.size(); ++n) {
            bits.back()[n] = static_cast<uint32_t>(state[n]);
          }
        }
        return bits;
      });
}

INSTANTIATE_TEST_SUITE_P(Backends, FoldChunksTest, EveryBackend(), BackendName);

}  // namespace
}  // namespace flash
