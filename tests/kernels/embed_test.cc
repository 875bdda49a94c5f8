// Embed() against format step 1 in double.

#include <cmath>
#include <limits>
#include <vector>

#include "tests/kernels/backend_fixture.h"

namespace flash {
namespace {

// Numbers of the order of 10 after two roundings to float32.
constexpr double kTolerance = 2e-6;

constexpr int64_t kVocabulary = 11;
constexpr int64_t kMaxLength = 130;
constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kBFloat16};
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// The tables of an embedding of width `cols`. Row 0 of each is NaN: nobody asks
// for it.
class Tables {
 public:
  Tables(int64_t cols, DataType type, Embedding::Position position)
      : random_(cols),
        cols_(cols),
        tokens_(kVocabulary, cols, type, random_),
        positions_(kMaxLength, cols, type, random_) {
    for (int64_t col = 0; col < cols; ++col) {
      tokens_.Set(0, col, kNaN);
      positions_.Set(0, col, kNaN);
    }
    for (int64_t k = 0; k < cols / 2; ++k) {
      frequencies_.push_back(std::pow(10000.0, -2.0 * k / cols));
    }
    embedding_ = {.table = tokens_.data(),
                  .type = type,
                  .scale = 1.7f,
                  .position = position,
                  .frequencies = frequencies_.data(),
                  .position_scale = 0.6f,
                  .position_table = positions_.data(),
                  .position_type = type};
  }

  const Embedding& embedding() const { return embedding_; }

  double Expected(const Row& row, int64_t col) const {
    const double x = tokens_.At(row.token, col) * double{embedding_.scale};
    const double scale = embedding_.position_scale;
    const int64_t half = cols_ / 2;
    switch (embedding_.position) {
      case Embedding::Position::kNone:
        return x;
      case Embedding::Position::kSinusoidal:
        return col < half
                   ? x + scale * std::sin(row.position * frequencies_[col])
                   : x + scale *
                             std::cos(row.position * frequencies_[col - half]);
      case Embedding::Position::kLearned:
        return x + positions_.At(row.position, col);
    }
    return kNaN;
  }

 private:
  RandomSource random_;
  const int64_t cols_;
  StoredNumbers tokens_;
  StoredNumbers positions_;
  std::vector<double> frequencies_;
  Embedding embedding_;
};

std::vector<Row> RandomRows(int count, int64_t max_position) {
  RandomSource random(max_position);
  std::vector<Row> rows(count);
  for (Row& row : rows) {
    row.token = static_cast<int32_t>(random.Integer(1, kVocabulary - 1));
    row.position = random.Integer(1, max_position);
  }
  return rows;
}

class EmbedTest : public BackendTest {
 protected:
  static Matrix Run(Backend& backend, const Tables& tables,
                    const std::vector<Row>& rows, int64_t cols) {
    const Step step = StepOfSingleRows(rows);
    Matrix x(static_cast<int64_t>(rows.size()), cols);
    backend.BeginStep(step.view());
    backend.Embed(tables.embedding(), x.view());
    return x;
  }

  void ExpectTheDefinition(int64_t cols, DataType type,
                           Embedding::Position position, int64_t max_position) {
    const TestBackend backend = Make();
    const Tables tables(cols, type, position);
    const std::vector<Row> rows = RandomRows(7, max_position);
    const Matrix x = Run(*backend, tables, rows, cols);
    for (int64_t row = 0; row < x.rows(); ++row) {
      for (int64_t col = 0; col < cols; ++col) {
        EXPECT_NEAR(x.Row(row)[col], tables.Expected(rows[row], col),
                    kTolerance);
      }
    }
    x.ExpectZeroPadding();
    x.ExpectIntact();
  }
};

TEST_P(EmbedTest, ScalesTheTokensRow) {
  for (const DataType type : kTypes) {
    for (const int64_t cols : {1, 2, 13, 15, 16, 17, 33}) {
      ExpectTheDefinition(cols, type, Embedding::Position::kNone, kMaxLength);
    }
  }
}

TEST_P(EmbedTest, AddsTheRowOfALearnedPosition) {
  for (const DataType type : kTypes) {
    for (const int64_t cols : {1, 2, 15, 16, 17}) {
      ExpectTheDefinition(cols, type, Embedding::Position::kLearned,
                          kMaxLength - 1);
    }
  }
}

TEST_P(EmbedTest, AddsSinesAndCosinesOfAnyPosition) {
  for (const int64_t cols : {2, 14, 16, 18, 34}) {
    ExpectTheDefinition(cols, DataType::kFloat32,
                        Embedding::Position::kSinusoidal, 100);
    // Where the angle itself, in float32, would be off by a twentieth.
    ExpectTheDefinition(cols, DataType::kBFloat16,
                        Embedding::Position::kSinusoidal, 1'000'003);
  }
}

TEST_P(EmbedTest, GivesEachRowTheSameBitsAloneAndInACrowd) {
  const int64_t cols = 18;
  const Tables tables(cols, DataType::kFloat32,
                      Embedding::Position::kSinusoidal);
  const std::vector<Row> rows = RandomRows(kMaxRows, 5000);
  ExpectSameBitsAloneAndInACrowd(
      {.max_rows = kMaxRows}, kMaxRows,
      [&](Backend& backend, const std::vector<int>& places) {
        std::vector<Row> chosen;
        for (const int place : places) chosen.push_back(rows[place]);
        return Run(backend, tables, chosen, cols).Bits();
      });
}

INSTANTIATE_TEST_SUITE_P(Backends, EmbedTest, EveryBackend(), BackendName);

}  // namespace
}  // namespace flash
