// Attend() against format steps 2.5 to 2.7 in double, and the same bits however
// a chunk's positions come in.

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/kernels/random_layer.h"

namespace flash {
namespace {

// Relative to the sum of the absolute values of what is added up: scores are
// sums of up to 33 products, their weights square the error, and a result is a
// sum of up to 70 + 33 products.
constexpr double kTolerance = 1e-5;

constexpr DataType kCaches[] = {DataType::kFloat32, DataType::kBFloat16};
constexpr Phi kPhis[] = {Phi::kReluSquared, Phi::kLaplace};

Attention Settings(int64_t s, int64_t e, int64_t c,
                   Phi phi = Phi::kReluSquared) {
  return {.query_key_size = s,
          .expanded_size = e,
          .chunk_size = c,
          .phi = phi,
          .score_scale = 1.0f / static_cast<float>(s),
          .laplace_mean = 0.7f,
          .laplace_std = 0.3f};
}

Workload WorkloadOf(const Attention& attention) {
  return {.max_rows = std::max<int64_t>(40, attention.chunk_size),
          .query_key_size = attention.query_key_size,
          .chunk_size = attention.chunk_size};
}

// Slots with a random U each, which those in their first chunk do not read.
Slots SlotsWithU(const Attention& attention, DataType cache, int num_slots,
                 uint32_t stale = kNaNs) {
  Slots slots(attention, cache, num_slots, stale);
  for (int slot = 0; slot < num_slots && attention.has_linear; ++slot) {
    slots.FillRandom(Slots::kU, slot, 0, attention.query_key_size);
  }
  return slots;
}

double ExpectedPhi(const Attention& attention, double score) {
  if (attention.phi == Phi::kReluSquared) {
    return std::pow(std::fmax(score, 0), 2);
  }
  return 0.5 * (1 + std::erf((score - attention.laplace_mean) /
                             (attention.laplace_std * std::sqrt(2.0))));
}

// The rows of a step by their definition, from the queries of the step and the
// keys and values in the slots.
class Oracle {
 public:
  Oracle(const RandomLayer& layer, const LayerStep& step, const Slots& slots)
      : layer_(layer), step_(step), slots_(slots) {}

  void ExpectRow(int64_t row) const {
    const std::vector<double> weights = Weights(row);
    for (int64_t col = 0; col < layer_.e(); ++col) {
      const Sum sum = Output(row, weights, col);
      const double gate = step_.uvz().Row(row)[col];
      EXPECT_NEAR(step_.gated().Row(row)[col], gate * sum.value,
                  kTolerance * (std::fabs(gate) * (1 + sum.magnitude)))
          << "row " << row << ", column " << col;
    }
  }

 private:
  struct Sum {
    double value = 0;
    double magnitude = 0;
    void Add(double term) {
      value += term;
      magnitude += std::fabs(term);
    }
  };

  std::vector<double> Weights(int64_t n) const {
    const Attention& attention = layer_.attention();
    const Row& row = step_.rows()[n];
    std::vector<double> weights;
    for (int64_t j = 0; j <= row.offset && attention.has_quadratic; ++j) {
      double score = 0;
      for (int64_t c = 0; c < layer_.s(); ++c) {
        score += double{step_.quad_q().Row(n)[c]} *
                 slots_.Get(Slots::kQuadK, row.slot, j, c);
      }
      score = score * attention.score_scale + attention.bias[row.offset - j];
      weights.push_back(row.weight_scale * ExpectedPhi(attention, score));
    }
    return weights;
  }

  Sum Output(int64_t n, const std::vector<double>& weights, int64_t col) const {
    const Row& row = step_.rows()[n];
    Sum sum;
    for (size_t j = 0; j < weights.size(); ++j) {
      sum.Add(weights[j] * slots_.Get(Slots::kValue, row.slot, j, col));
    }
    if (!layer_.attention().has_linear || row.position == row.offset)
      return sum;
    for (int64_t k = 0; k < layer_.s(); ++k) {
      sum.Add(row.linear_scale * double{step_.lin_q().Row(n)[k]} *
              slots_.Get(Slots::kU, row.slot, k, col));
    }
    return sum;
  }

  const RandomLayer& layer_;
  const LayerStep& step_;
  const Slots& slots_;
};

class AttendTest : public BackendTest {
 protected:
  // The whole of a chunk at once, in slot 1, with memory that is not finite
  // wherever nothing was stored; and the first row of another.
  void ExpectTheDefinition(const Attention& settings, DataType cache,
                           int64_t chunk) {
    SCOPED_TRACE(testing::Message()
                 << "S " << settings.query_key_size << ", E "
                 << settings.expanded_size << ", C " << settings.chunk_size);
    const int64_t c = settings.chunk_size;
    const TestBackend backend = Make({.max_rows = c + 1,
                                      .query_key_size = settings.query_key_size,
                                      .chunk_size = c});
    const RandomLayer layer(settings);
    const Slots slots = SlotsWithU(settings, cache, 4);
    const LayerStep step(
        layer, {{.slot = 1, .position = chunk * c, .num_rows = int(c)},
                {.slot = 2, .position = 0, .num_rows = 1}});
    step.Run(*backend, slots);
    const Oracle oracle(layer, step, slots);
    for (int64_t row = 0; row <= c; ++row) oracle.ExpectRow(row);
    step.gated().ExpectZeroPadding();
    step.gated().ExpectIntact();
  }

  void ExpectTheDefinitionOfAnySize(Attention settings) {
    for (const int64_t s : {1, 17, 32}) {
      for (const int64_t e : {1, 15, 16, 33, 130}) {
        for (const int64_t c : {1, 2, 19}) {
          settings.query_key_size = s;
          settings.expanded_size = e;
          settings.chunk_size = c;
          ExpectTheDefinition(settings, DataType::kFloat32, 0);
          ExpectTheDefinition(settings, DataType::kBFloat16, 3);
        }
      }
    }
  }
};

TEST_P(AttendTest, AddsUpTheChunkAndTheClosedOnes) {
  ExpectTheDefinitionOfAnySize(Settings(2, 2, 2));
}

TEST_P(AttendTest, AddsUpTheChunkAlone) {
  Attention settings = Settings(2, 2, 2);
  settings.has_linear = false;
  ExpectTheDefinitionOfAnySize(settings);
}

TEST_P(AttendTest, AddsUpTheClosedChunksAlone) {
  Attention settings = Settings(2, 2, 2);
  settings.has_quadratic = false;
  ExpectTheDefinitionOfAnySize(settings);
}

TEST_P(AttendTest, AddsUpMoreThanABlockOfACardReadsAtOnce) {
  const Attention settings = Settings(300, 70, 290);
  ExpectTheDefinition(settings, DataType::kFloat32, 0);
  ExpectTheDefinition(settings, DataType::kBFloat16, 2);
}

TEST_P(AttendTest, HasLaplaceWeights) {
  ExpectTheDefinition(Settings(17, 33, 19, Phi::kLaplace), DataType::kFloat32,
                      0);
  ExpectTheDefinition(Settings(32, 64, 70, Phi::kLaplace), DataType::kBFloat16,
                      2);
}

struct Outcome {
  std::vector<std::vector<uint32_t>> gated;
  std::vector<float> quad_k;
  std::vector<std::byte> lin_k, value;
  bool operator==(const Outcome&) const = default;
};

void ScaleValues(const LayerStep& step, int64_t e, float scale) {
  for (size_t row = 0; row < step.rows().size(); ++row) {
    float* values = step.uvz().Row(row) + Padded(e);
    for (int64_t c = 0; c < e; ++c) values[c] *= scale;
  }
}

// What becomes of a slot whose chunk comes in runs of these sizes.
Outcome RunChunk(Backend& backend, const RandomLayer& layer, DataType cache,
                 int64_t begin, const std::vector<int>& runs, uint32_t stale,
                 float value_scale) {
  const Slots slots = SlotsWithU(layer.attention(), cache, 3, stale);
  Outcome outcome;
  int64_t position = begin;
  for (const int num_rows : runs) {
    const LayerStep step(
        layer, {{.slot = 1, .position = position, .num_rows = num_rows}});
    ScaleValues(step, layer.e(), value_scale);
    step.Run(backend, slots);
    for (auto& row : step.gated().Bits()) {
      outcome.gated.push_back(std::move(row));
    }
    position += num_rows;
  }
  if (layer.attention().has_quadratic) {
    // Number by number: between them stand positions that no chunk has.
    for (int64_t j = 0; j < layer.c(); ++j) {
      for (int64_t k = 0; k < layer.s(); ++k) {
        outcome.quad_k.push_back(slots.Get(Slots::kQuadK, 1, j, k));
      }
    }
  }
  if (layer.attention().has_linear) {
    outcome.lin_k = slots.Bytes(Slots::kLinK, 1);
  }
  outcome.value = slots.Bytes(Slots::kValue, 1);
  return outcome;
}

// Runs of random sizes that make up `total` rows.
std::vector<int> RandomRuns(int64_t total, RandomSource& random) {
  std::vector<int> runs;
  for (int64_t left = total; left > 0; left -= runs.back()) {
    runs.push_back(
        static_cast<int>(random.Integer(1, std::min<int64_t>(left, 17))));
  }
  return runs;
}

class AttendBitsTest : public AttendTest {
 protected:
  // The whole chunk in one run is what every other division of it is compared
  // with.
  void ExpectTheSameBitsHoweverItIsCut(const Attention& settings,
                                       DataType cache, int64_t chunk,
                                       float value_scale = 1) {
    const TestBackend backend = Make(WorkloadOf(settings));
    const RandomLayer layer(settings);
    const int64_t c = settings.chunk_size;
    const auto run = [&](const std::vector<int>& runs, uint32_t stale) {
      return RunChunk(*backend, layer, cache, chunk * c, runs, stale,
                      value_scale);
    };
    const Outcome whole = run({static_cast<int>(c)}, kNaNs);
    EXPECT_EQ(run(std::vector<int>(c, 1), kNaNs), whole);
    const uint32_t infinities =
        cache == DataType::kFloat32 ? kInfinities : kBFloat16Infinities;
    EXPECT_EQ(run(std::vector<int>(c, 1), infinities), whole);
    RandomSource random(chunk);
    for (int attempt = 0; attempt < 5; ++attempt) {
      EXPECT_EQ(run(RandomRuns(c, random), kNaNs), whole);
      EXPECT_EQ(run(RandomRuns(c, random), infinities), whole);
    }
  }
};

TEST_P(AttendBitsTest, AreTheSameStepByStepAndInOneRun) {
  for (const DataType cache : kCaches) {
    for (const Phi phi : kPhis) {
      for (const int64_t chunk : {0, 5}) {
        ExpectTheSameBitsHoweverItIsCut(Settings(17, 33, 37, phi), cache,
                                        chunk);
      }
    }
  }
}

TEST_P(AttendBitsTest, AreTheSameStepByStepAndInOneRunOfOneBranch) {
  for (const DataType cache : kCaches) {
    Attention settings = Settings(16, 80, 37);
    settings.has_linear = false;
    ExpectTheSameBitsHoweverItIsCut(settings, cache, 2);
    settings.has_linear = true;
    settings.has_quadratic = false;
    ExpectTheSameBitsHoweverItIsCut(settings, cache, 2);
  }
}

TEST_P(AttendBitsTest, AreTheSameWhereSumsUnderflow) {
  // Small weights and smaller values: every product is flushed, and a negative
  // one leaves a sum of -0 until something else is added.
  Attention settings = Settings(16, 80, 37, Phi::kLaplace);
  settings.has_linear = false;
  settings.laplace_mean = 4;
  settings.laplace_std = 1;
  ExpectTheSameBitsHoweverItIsCut(settings, DataType::kFloat32, 0, 1e-37f);
}

// A run of one to three rows for each of a few slots that stand at different
// offsets of their chunks.
PositionRun RunOfSlot(int slot, int64_t chunk_size) {
  const int64_t offset = slot * 5 % (chunk_size - 3);
  return {.slot = slot,
          .position = slot % 3 * chunk_size + offset,
          .num_rows = 1 + slot % 3};
}

// Brings the slot to where its run begins.
void Prefill(Backend& backend, const RandomLayer& layer, const Slots& slots,
             const PositionRun& run) {
  const int64_t offset = run.position % layer.c();
  if (offset == 0) return;
  LayerStep(layer, {{.slot = run.slot,
                     .position = run.position - offset,
                     .num_rows = static_cast<int>(offset)}})
      .Run(backend, slots);
}

std::vector<std::vector<uint32_t>> RunCrowd(Backend& backend,
                                            const RandomLayer& layer,
                                            DataType cache,
                                            const std::vector<int>& places) {
  const Slots slots = SlotsWithU(layer.attention(), cache, 13);
  std::vector<PositionRun> runs;
  for (const int place : places) {
    runs.push_back(RunOfSlot(place, layer.c()));
    Prefill(backend, layer, slots, runs.back());
  }
  const LayerStep step(layer, runs);
  step.Run(backend, slots);
  const std::vector<std::vector<uint32_t>> rows = step.gated().Bits();
  std::vector<std::vector<uint32_t>> bits(runs.size());
  for (size_t n = 0, row = 0; n < runs.size(); ++n) {
    for (int left = runs[n].num_rows; left > 0; --left, ++row) {
      bits[n].insert(bits[n].end(), rows[row].begin(), rows[row].end());
    }
  }
  return bits;
}

TEST_P(AttendBitsTest, AreTheSameAloneAndInACrowd) {
  for (const DataType cache : kCaches) {
    for (const Phi phi : kPhis) {
      const RandomLayer layer(Settings(17, 130, 23, phi));
      ExpectSameBitsAloneAndInACrowd(
          WorkloadOf(layer.attention()), 13,
          [&](Backend& backend, const std::vector<int>& places) {
            return RunCrowd(backend, layer, cache, places);
          });
    }
  }
}

TEST_P(AttendBitsTest, AreTheSameWhileTheFoldThatClosesAChunkIsPutOff) {
  for (const DataType cache : kCaches) {
    for (int positions = 1; positions <= kMaxPutOff; ++positions) {
      const RandomLayer layer(Settings(19, 150, 23));
      const TestBackend backend = Make(WorkloadOf(layer.attention()));
      Slots slots = SlotsWithU(layer.attention(), cache, 3);
      std::vector<PositionRun> runs;
      for (int slot = 0; slot < 3; ++slot) {
        runs.push_back({.slot = slot, .position = 23});
        slots.FillRandom(Slots::kSum, slot, 0, layer.s());
        LayerStep(layer, {{.slot = slot, .num_rows = 23}}).Run(*backend, slots);
      }
      // Of two slots of three, positions of different number.
      const std::vector<Fold> folds = {
          {.slot = 2, .first = 23 - positions, .last = 23, .closes = true},
          {.slot = 0, .first = 18 + positions, .last = 23, .closes = true}};
      const LayerStep put_off(layer, runs);
      backend->BeginStep(put_off.view());
      put_off.AppendHeads(*backend, slots);
      put_off.Attend(*backend, slots, folds);
      const LayerStep made(layer, runs);
      backend->BeginStep(made.view());
      backend->FoldChunks(layer.attention(), slots.state(), folds);
      made.AppendHeads(*backend, slots);
      made.Attend(*backend, slots);
      EXPECT_EQ(put_off.gated().Bits(), made.gated().Bits());
    }
  }
}

TEST_P(AttendTest, PassesOnAScoreThatIsNotANumber) {
  for (const Phi phi : kPhis) {
    const Attention settings = Settings(2, 16, 4, phi);
    const TestBackend backend = Make(WorkloadOf(settings));
    const RandomLayer layer(settings);
    Slots slots = SlotsWithU(settings, DataType::kFloat32, 1);
    const LayerStep step(layer, {{.slot = 0}});
    backend->BeginStep(step.view());
    step.AppendHeads(*backend, slots);
    slots.Set(Slots::kQuadK, 0, 0, 1, 0);
    step.quad_q().Row(0)[1] = std::numeric_limits<float>::infinity();
    step.Attend(*backend, slots);
    EXPECT_FALSE(std::isfinite(step.gated().Row(0)[0]));
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, AttendTest, EveryBackend(), BackendName);
INSTANTIATE_TEST_SUITE_P(Backends, AttendBitsTest, EveryBackend(), BackendName);

}  // namespace
}  // namespace flash
