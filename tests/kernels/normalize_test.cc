// Normalize() against format step 2.1 in double.

#include <cmath>
#include <vector>

#include "tests/kernels/backend_fixture.h"

namespace flash {
namespace {

// Results are of the order of 1 to 10, and sums of up to a hundred numbers of
// one sign are off by a few ulp.
constexpr double kTolerance = 4e-6;

constexpr int64_t kSizes[] = {1, 2, 13, 15, 16, 17, 31, 32, 33, 97};

// A norm of `cols` numbers with random weights.
class RandomNorm {
 public:
  RandomNorm(int64_t cols, Norm::Type type,
             Norm::EpsMode mode = Norm::EpsMode::kAdd, float eps = 1e-5f)
      : random_(cols), numbers_(Matrix::Random(2, cols, random_)) {
    norm_ = {.type = type,
             .eps_mode = mode,
             .eps = eps,
             .weight = numbers_.Row(0),
             .bias = type == Norm::Type::kLayer ? numbers_.Row(1) : nullptr};
  }

  const Norm& norm() const { return norm_; }

  std::vector<double> Expected(const float* x) const {
    const int64_t cols = numbers_.cols();
    double mean = 0;
    if (norm_.type == Norm::Type::kLayer) {
      for (int64_t c = 0; c < cols; ++c) mean += x[c] / double(cols);
    }
    double squares = 0;
    for (int64_t c = 0; c < cols; ++c) squares += std::pow(x[c] - mean, 2);
    squares /= static_cast<double>(cols);
    const double divisor = norm_.eps_mode == Norm::EpsMode::kAdd
                               ? std::sqrt(squares + norm_.eps)
                               : std::fmax(std::sqrt(squares), norm_.eps);
    std::vector<double> y;
    for (int64_t c = 0; c < cols; ++c) {
      y.push_back(Weighted((x[c] - mean) / divisor, x[c], c));
    }
    return y;
  }

 private:
  double Weighted(double unit, double x, int64_t col) const {
    switch (norm_.type) {
      case Norm::Type::kNone:
        return x;
      case Norm::Type::kScale:
        return unit * norm_.weight[0];
      case Norm::Type::kRms:
        return unit * norm_.weight[col];
      case Norm::Type::kLayer:
        return unit * norm_.weight[col] + norm_.bias[col];
    }
    return 0;
  }

  RandomSource random_;
  const Matrix numbers_;
  Norm norm_;
};

// Rows of every size and off the centre; the last one is zero.
Matrix RandomRows(int64_t rows, int64_t cols) {
  RandomSource random(rows);
  Matrix x = Matrix::Random(rows, cols, random);
  for (int64_t row = 0; row < rows; ++row) {
    const float scale = row + 1 < rows ? std::ldexp(1.0f, 3 * row % 20 - 9) : 0;
    for (int64_t c = 0; c < cols; ++c) {
      x.Row(row)[c] = (x.Row(row)[c] + row % 3) * scale;
    }
  }
  return x;
}

void ExpectTheDefinition(const RandomNorm& norm, const Matrix& x,
                         const Matrix& y) {
  for (int64_t row = 0; row < x.rows(); ++row) {
    const std::vector<double> expected = norm.Expected(x.Row(row));
    for (int64_t c = 0; c < x.cols(); ++c) {
      const double scale = std::fmax(1, std::fabs(expected[c]));
      EXPECT_NEAR(y.Row(row)[c], expected[c], kTolerance * scale);
    }
  }
  y.ExpectZeroPadding();
  y.ExpectIntact();
}

class NormalizeTest : public BackendTest {
 protected:
  void ExpectTheDefinitionOf(Norm::Type type, Norm::EpsMode mode, float eps) {
    const TestBackend backend = Make();
    for (const int64_t cols : kSizes) {
      const RandomNorm norm(cols, type, mode, eps);
      const Matrix x = RandomRows(9, cols);
      Matrix y(9, cols);
      backend->Normalize(norm.norm(), x.view(), y.view());
      ExpectTheDefinition(norm, x, y);
    }
  }
};

TEST_P(NormalizeTest, DividesByTheRootOfTheMeanSquareAndEpsilon) {
  for (const Norm::Type type : {Norm::Type::kScale, Norm::Type::kRms}) {
    ExpectTheDefinitionOf(type, Norm::EpsMode::kAdd, 1e-5f);
    ExpectTheDefinitionOf(type, Norm::EpsMode::kAdd, 0.25f);
  }
}

TEST_P(NormalizeTest, DividesByEpsilonAtLeast) {
  for (const Norm::Type type : {Norm::Type::kScale, Norm::Type::kRms}) {
    ExpectTheDefinitionOf(type, Norm::EpsMode::kClamp, 1e-5f);
    ExpectTheDefinitionOf(type, Norm::EpsMode::kClamp, 0.25f);
  }
}

TEST_P(NormalizeTest, TakesTheMeanAwayInLayerNorm) {
  ExpectTheDefinitionOf(Norm::Type::kLayer, Norm::EpsMode::kAdd, 1e-5f);
}

TEST_P(NormalizeTest, LeavesARowAsItIsWhereThereIsNoNorm) {
  const TestBackend backend = Make();
  for (const int64_t cols : kSizes) {
    const Matrix x = RandomRows(5, cols);
    Matrix y(5, cols);
    backend->Normalize(Norm(), x.view(), y.view());
    EXPECT_EQ(y.Bits(), x.Bits());
  }
}

TEST_P(NormalizeTest, MayWriteOverItsOperand) {
  const TestBackend backend = Make();
  for (const Norm::Type type : {Norm::Type::kNone, Norm::Type::kScale,
                                Norm::Type::kRms, Norm::Type::kLayer}) {
    const RandomNorm norm(33, type);
    Matrix x = RandomRows(7, 33);
    Matrix y(7, 33);
    backend->Normalize(norm.norm(), x.view(), y.view());
    backend->Normalize(norm.norm(), x.view(), x.view());
    EXPECT_EQ(x.Bits(), y.Bits());
  }
}

TEST_P(NormalizeTest, GivesEachRowTheSameBitsAloneAndInACrowd) {
  for (const Norm::Type type :
       {Norm::Type::kScale, Norm::Type::kRms, Norm::Type::kLayer}) {
    const RandomNorm norm(37, type);
    const Matrix x = RandomRows(kMaxRows, 37);
    ExpectSameBitsAloneAndInACrowd(
        {.max_rows = kMaxRows}, kMaxRows,
        [&](Backend& backend, const std::vector<int>& rows) {
          Matrix y = Matrix::Chosen(x, rows);
          backend.Normalize(norm.norm(), y.view(), y.view());
          return y.Bits();
        });
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, NormalizeTest, EveryBackend(), BackendName);

}  // namespace
}  // namespace flash
