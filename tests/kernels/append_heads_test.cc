// AppendHeads() against format step 2.4 in double, and what it leaves alone.

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "tests/kernels/random_layer.h"

namespace flash {
namespace {

using testing::Each;

// Four roundings of numbers of the order of 10.
constexpr double kTolerance = 4e-6;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr Workload kWorkload = {.max_rows = 40};
constexpr DataType kCaches[] = {DataType::kFloat32, DataType::kBFloat16};

Attention Settings(int64_t s, int64_t e, int64_t rotary_size,
                   Rotary::Layout layout = Rotary::Layout::kHalves) {
  return {.query_key_size = s,
          .expanded_size = e,
          .chunk_size = 8,
          .rotary_layout = layout,
          .rotary_size = rotary_size};
}

// The branches that a layer may have.
std::vector<Attention> Branches(Attention both) {
  std::vector<Attention> branches(3, both);
  branches[1].has_linear = false;
  branches[2].has_quadratic = false;
  return branches;
}

// Head number `head` of a row.
std::vector<double> Expected(const RandomLayer& layer, const LayerStep& step,
                             int64_t row, int64_t head) {
  const Attention& attention = layer.attention();
  const float* z = step.uvz().Row(row) + 2 * Padded(layer.e());
  std::vector<double> y;
  for (int64_t c = 0; c < layer.s(); ++c) {
    const int64_t at = head * Padded(layer.s()) + c;
    y.push_back(double{z[c]} * attention.head_scale[at] +
                attention.head_offset[at]);
  }
  for (int64_t k = 0; k < attention.rotary_size / 2; ++k) {
    const bool halves = attention.rotary_layout == Rotary::Layout::kHalves;
    double& a = y[halves ? k : 2 * k];
    double& b = y[halves ? k + attention.rotary_size / 2 : 2 * k + 1];
    const double cos = step.cos().Row(row)[k];
    const double sin = step.sin().Row(row)[k];
    std::tie(a, b) = std::pair(a * cos - b * sin, b * cos + a * sin);
  }
  return y;
}

class AppendHeadsTest : public BackendTest {
 protected:
  // A step of a few runs in slots 1 and 3 of 4.
  static std::vector<PositionRun> SomeRuns() {
    return {{.slot = 3, .position = 2, .num_rows = 3},
            {.slot = 1, .position = 8 * 125'000 + 7, .num_rows = 1}};
  }

  static void ExpectQueries(const RandomLayer& layer, const LayerStep& step) {
    for (int64_t row = 0; row < step.uvz().rows(); ++row) {
      int64_t head = 0;
      if (layer.attention().has_quadratic) {
        ExpectNumbers(step.quad_q().Row(row), Expected(layer, step, row, head));
        head += 2;
      }
      if (layer.attention().has_linear) {
        ExpectNumbers(step.lin_q().Row(row), Expected(layer, step, row, head));
      }
    }
  }

  static void ExpectNumbers(const float* numbers,
                            const std::vector<double>& expected) {
    for (size_t c = 0; c < expected.size(); ++c) {
      EXPECT_NEAR(numbers[c], expected[c], kTolerance);
    }
  }

  static void ExpectRow(const Slots& slots, Slots::Tensor tensor,
                        const Row& row, const std::vector<double>& expected,
                        double tolerance) {
    for (size_t c = 0; c < expected.size(); ++c) {
      EXPECT_NEAR(slots.Get(tensor, row.slot, row.offset, c), expected[c],
                  tolerance);
    }
    if (tensor == Slots::kQuadK) return;  // has no padding there
    for (int64_t c = expected.size(); c < Padded(expected.size()); ++c) {
      EXPECT_EQ(slots.Get(tensor, row.slot, row.offset, c), 0);
    }
  }

  static void ExpectKeys(const RandomLayer& layer, const LayerStep& step,
                         const Slots& slots) {
    for (int64_t n = 0; n < step.uvz().rows(); ++n) {
      const Row& row = step.rows()[n];
      int64_t head = 1;
      if (layer.attention().has_quadratic) {
        ExpectRow(slots, Slots::kQuadK, row, Expected(layer, step, n, head),
                  kTolerance);
        head += 2;
      }
      if (layer.attention().has_linear) {
        ExpectRow(slots, Slots::kLinK, row, Expected(layer, step, n, head),
                  kTolerance);
      }
      const float* value = step.uvz().Row(n) + Padded(layer.e());
      ExpectRow(slots, Slots::kValue, row, {value, value + layer.e()}, 0);
    }
  }

  void ExpectTheDefinition(const Attention& settings) {
    const TestBackend backend = Make(kWorkload);
    const RandomLayer layer(settings);
    const LayerStep step(layer, SomeRuns());
    const Slots slots(settings, DataType::kFloat32, 4);
    backend->BeginStep(step.view());
    step.AppendHeads(*backend, slots);
    EXPECT_THAT(backend.EndStep(step.rows().size()), Each(0));
    ExpectQueries(layer, step);
    ExpectKeys(layer, step, slots);
    step.quad_q().ExpectIntact();
    step.lin_q().ExpectIntact();
  }
};

TEST_P(AppendHeadsTest, RotatesHalves) {
  for (const auto& [s, rotary_size] :
       {std::pair(1, 0), {2, 2}, {15, 14}, {16, 16}, {17, 6}, {33, 32}}) {
    for (const Attention& settings : Branches(Settings(s, 17, rotary_size))) {
      ExpectTheDefinition(settings);
    }
  }
}

TEST_P(AppendHeadsTest, RotatesNeighbours) {
  for (const auto& [s, rotary_size] :
       {std::pair(1, 0), {2, 2}, {15, 14}, {16, 16}, {17, 6}, {33, 32}}) {
    for (const Attention& settings :
         Branches(Settings(s, 16, rotary_size, Rotary::Layout::kInterleaved))) {
      ExpectTheDefinition(settings);
    }
  }
}

TEST_P(AppendHeadsTest, RoundsKeysAndValuesToTheCachesType) {
  const TestBackend backend = Make(kWorkload);
  const RandomLayer layer(Settings(17, 33, 16));
  const LayerStep step(layer, SomeRuns());
  const Slots wide(layer.attention(), DataType::kFloat32, 4);
  const Slots narrow(layer.attention(), DataType::kBFloat16, 4);
  for (const Slots* slots : {&wide, &narrow}) {
    backend->BeginStep(step.view());
    step.AppendHeads(*backend, *slots);
  }
  for (const Row& row : step.rows()) {
    for (const auto tensor : {Slots::kQuadK, Slots::kLinK, Slots::kValue}) {
      const int64_t cols = tensor == Slots::kValue  ? 48
                           : tensor == Slots::kLinK ? 32
                                                    : 17;
      for (int64_t c = 0; c < cols; ++c) {
        const float number = wide.Get(tensor, row.slot, row.offset, c);
        EXPECT_EQ(narrow.Get(tensor, row.slot, row.offset, c),
                  RoundedTo(DataType::kBFloat16, number));
      }
    }
  }
}

// Undoes a step: its rows of the slots become what they were before it.
void MakeStale(const LayerStep& step, Slots& slots) {
  const float nan = std::nanf("");
  for (const Row& row : step.rows()) {
    for (int64_t c = 0; c < 15; ++c) {
      slots.Set(Slots::kQuadK, row.slot, row.offset, c, nan);
    }
    for (int64_t c = 0; c < 16; ++c) {
      slots.Set(Slots::kLinK, row.slot, row.offset, c, nan);
    }
    for (int64_t c = 0; c < 32; ++c) {
      slots.Set(Slots::kValue, row.slot, row.offset, c, nan);
    }
  }
}

TEST_P(AppendHeadsTest, WritesNothingButItsRowsOfTheChunk) {
  const TestBackend backend = Make(kWorkload);
  for (const DataType cache : kCaches) {
    const RandomLayer layer(Settings(15, 17, 14));
    const LayerStep step(layer, SomeRuns());
    Slots untouched(layer.attention(), cache, 4);
    Slots slots(layer.attention(), cache, 4);
    backend->BeginStep(step.view());
    step.AppendHeads(*backend, slots);
    MakeStale(step, slots);
    MakeStale(step, untouched);
    for (int slot = 0; slot < 4; ++slot) {
      EXPECT_EQ(slots.Bytes(slot), untouched.Bytes(slot));
    }
  }
}

TEST_P(AppendHeadsTest, MarksTheRowThatIsNotFinite) {
  const TestBackend backend = Make(kWorkload);
  const RandomLayer layer(Settings(17, 18, 16));
  for (const float fault : {std::nanf(""), kInfinity, -kInfinity}) {
    for (const int64_t col : {0, 17, 32, 49, 64, 80}) {  // gate, value, z
      const LayerStep step(layer, {{.slot = 0, .position = 0, .num_rows = 5},
                                   {.slot = 2, .position = 4, .num_rows = 2}});
      step.uvz().Row(3)[col] = fault;
      const Slots slots(layer.attention(), DataType::kFloat32, 3);
      backend->BeginStep(step.view());
      step.AppendHeads(*backend, slots);
      EXPECT_EQ(backend.EndStep(7), std::vector<uint8_t>({0, 0, 0, 1, 0, 0, 0}))
          << fault << " in column " << col;
    }
  }
}

TEST_P(AppendHeadsTest, KeepsAnyNaNNotFiniteInTheCache) {
  const TestBackend backend = Make(kWorkload);
  const RandomLayer layer(Settings(16, 16, 0));
  for (const uint32_t bits :
       {0x7fc00000u, 0x7f800001u, 0xff800001u, 0x7fffffffu, 0xffffffffu}) {
    const LayerStep step(layer, {{.slot = 0}});
    std::memcpy(step.uvz().Row(0) + 16 + 5, &bits, sizeof(bits));
    const Slots slots(layer.attention(), DataType::kBFloat16, 1, 0);
    backend->BeginStep(step.view());
    step.AppendHeads(*backend, slots);
    EXPECT_FALSE(std::isfinite(slots.Get(Slots::kValue, 0, 0, 5))) << bits;
    EXPECT_TRUE(std::isfinite(slots.Get(Slots::kValue, 0, 0, 4))) << bits;
  }
}

TEST_P(AppendHeadsTest, GivesEachRowTheSameBitsAloneAndInACrowd) {
  const RandomLayer layer(Settings(17, 33, 16));
  ExpectSameBitsAloneAndInACrowd(
      kWorkload, kMaxRows,
      [&](Backend& backend, const std::vector<int>& places) {
        std::vector<PositionRun> runs;
        for (const int place : places) {
          runs.push_back({.slot = place, .position = 3 * place});
        }
        const LayerStep step(layer, runs);
        const Slots slots(layer.attention(), DataType::kFloat32, kMaxRows);
        backend.BeginStep(step.view());
        step.AppendHeads(backend, slots);
        std::vector<Bits> bits = step.quad_q().Bits();
        for (size_t n = 0; n < places.size(); ++n) {
          const Bits queries = step.lin_q().Bits()[n];
          bits[n].insert(bits[n].end(), queries.begin(), queries.end());
          const std::vector<std::byte> state = slots.Bytes(places[n]);
          for (const std::byte byte : state) bits[n].push_back(uint32_t(byte));
        }
        return bits;
      });
}

INSTANTIATE_TEST_SUITE_P(Backends, AppendHeadsTest, EveryBackend(),
                         BackendName);

}  // namespace
}  // namespace flash
