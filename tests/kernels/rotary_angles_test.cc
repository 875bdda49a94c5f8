// RotaryAngles(): cosines and sines that are right at any position.

#include <cmath>
#include <vector>

#include "tests/kernels/backend_fixture.h"

namespace flash {
namespace {

// Half an ulp of numbers up to 1, and a little for the library's own error.
constexpr double kTolerance = 6.1e-8;

constexpr int64_t kPositions[] = {0, 1, 2, 127, 128, 129, 1'000'003, 123456789};

std::vector<double> Frequencies(int64_t size) {
  std::vector<double> frequencies;
  for (int64_t k = 0; k < size / 2; ++k) {
    frequencies.push_back(std::pow(10000.0, -2.0 * k / size));
  }
  return frequencies;
}

std::vector<Row> RowsAt(int64_t chunk_size) {
  std::vector<Row> rows;
  for (const int64_t position : kPositions) {
    rows.push_back({.offset = static_cast<int32_t>(position % chunk_size),
                    .position = position});
  }
  return rows;
}

class RotaryAnglesTest : public BackendTest {
 protected:
  void ExpectTheDefinition(const Rotary& rotary) {
    const TestBackend backend = Make();
    const Step step = StepOfSingleRows(RowsAt(128));
    const int64_t num_rows = static_cast<int64_t>(step.rows.size());
    Matrix cos(num_rows, rotary.size / 2);
    Matrix sin(num_rows, rotary.size / 2);
    backend->BeginStep(step.view());
    backend->RotaryAngles(rotary, cos.view(), sin.view());
    for (int64_t n = 0; n < num_rows; ++n) {
      const Row& row = step.rows[n];
      const int64_t position = rotary.position == Rotary::Position::kSequence
                                   ? row.position
                                   : row.offset;
      for (int64_t k = 0; k < rotary.size / 2; ++k) {
        const double angle = position * rotary.frequencies[k];
        EXPECT_NEAR(cos.Row(n)[k], std::cos(angle), kTolerance);
        EXPECT_NEAR(sin.Row(n)[k], std::sin(angle), kTolerance);
      }
    }
    cos.ExpectIntact();
    sin.ExpectIntact();
  }
};

TEST_P(RotaryAnglesTest, MatchTheDefinition) {
  for (const int64_t size : {2, 6, 30, 32, 34, 128}) {
    const std::vector<double> frequencies = Frequencies(size);
    for (const auto position :
         {Rotary::Position::kSequence, Rotary::Position::kChunk}) {
      ExpectTheDefinition({.position = position,
                           .frequencies = frequencies.data(),
                           .size = size});
    }
  }
}

TEST_P(RotaryAnglesTest, AreNoneWhereNothingIsRotated) {
  ExpectTheDefinition(Rotary());
}

TEST_P(RotaryAnglesTest, GiveEachRowTheSameBitsAloneAndInACrowd) {
  const std::vector<double> frequencies = Frequencies(32);
  const Rotary rotary = {.frequencies = frequencies.data(), .size = 32};
  ExpectSameBitsAloneAndInACrowd(
      {.max_rows = kMaxRows}, kMaxRows,
      [&](Backend& backend, const std::vector<int>& places) {
        std::vector<Row> rows;
        for (const int place : places) rows.push_back({.position = place * 99});
        const Step step = StepOfSingleRows(rows);
        Matrix cos(static_cast<int64_t>(rows.size()), 16);
        Matrix sin(static_cast<int64_t>(rows.size()), 16);
        backend.BeginStep(step.view());
        backend.RotaryAngles(rotary, cos.view(), sin.view());
        std::vector<Bits> bits = cos.Bits();
        for (size_t n = 0; n < rows.size(); ++n) {
          const Bits sines = sin.Bits()[n];
          bits[n].insert(bits[n].end(), sines.begin(), sines.end());
        }
        return bits;
      });
}

INSTANTIATE_TEST_SUITE_P(Backends, RotaryAnglesTest, EveryBackend(),
                         BackendName);

}  // namespace
}  // namespace flash
