// Project() and ProjectAndAdd() against their definition in double; for int8
// weights see dense_int8_test.cc.

#include <cmath>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "tests/kernels/backend_fixture.h"
#include "tests/kernels/test_weights.h"

namespace flash {
namespace {

// Roundings in a row, for each input and at the end, each of half an ulp.
constexpr double kUnitRoundoff = 0x1p-24;
constexpr int kLastRoundings = 4;
// What Silu() may be off: a few ulp of e^x.
constexpr double kSiluTolerance = 1e-6;

constexpr DataType kStoredTypes[] = {DataType::kFloat32, DataType::kBFloat16};
constexpr DataType kAllStoredTypes[] = {DataType::kFloat32, DataType::kBFloat16,
                                        DataType::kInt8};

class DenseTest : public BackendTest {
 protected:
  // Inputs as the products take them: the instruction for bfloat16 weights
  // wants bfloat16, and so do a card's products.
  Matrix Rounded(const Matrix& x, DataType stored) const {
    Matrix rounded(x.rows(), x.cols());
    const bool rounds = (isa() == "avx512bf16" || is_on_card()) &&
                        stored == DataType::kBFloat16;
    for (int64_t row = 0; row < x.rows(); ++row) {
      for (int64_t c = 0; c < x.cols(); ++c) {
        rounded.Row(row)[c] =
            rounds ? RoundedTo(stored, x.Row(row)[c]) : x.Row(row)[c];
      }
    }
    return rounded;
  }

  static void ExpectElement(float y, double before,
                            const TestWeights::Output& w, const float* x,
                            Activation activation) {
    double sum = w.bias;
    double magnitude = std::fabs(sum) + std::fabs(before);
    for (size_t k = 0; k < w.weights.size(); ++k) {
      sum += w.weights[k] * x[k];
      magnitude += std::fabs(w.weights[k] * x[k]);
    }
    double tolerance =
        magnitude * kUnitRoundoff * (w.weights.size() + kLastRoundings);
    if (activation == Activation::kSilu) {
      sum /= 1 + std::exp(-sum);
      tolerance = 1.1 * tolerance + kSiluTolerance * std::fabs(sum);
    }
    EXPECT_NEAR(y, before + sum, tolerance) << "output " << w.column;
  }

  static void ExpectRow(const float* y, const TestWeights& weights,
                        const float* x, Activation activation) {
    std::vector<double> padding(y, y + weights.padded_outputs());
    for (const TestWeights::Output& output : weights.outputs()) {
      ExpectElement(y[output.column], 0, output, x, activation);
      padding[output.column] = 0;
    }
    EXPECT_THAT(padding, testing::Each(0));
  }

  void ExpectProject(const TestWeights& weights, const Matrix& x,
                     Activation activation) {
    const TestBackend backend =
        Make({.max_rows = x.rows(), .max_inputs = x.cols()});
    const auto dense = backend->MakeDense(weights.source());
    ASSERT_TRUE(dense.ok()) << dense.status();
    ASSERT_EQ((*dense)->outputs(), weights.padded_outputs());
    ASSERT_EQ((*dense)->inputs(), x.cols());
    Matrix y(x.rows(), weights.padded_outputs());
    backend->Project(**dense, x.view(), activation, y.view());
    const Matrix inputs = Rounded(x, weights.source().stored);
    for (int64_t row = 0; row < x.rows(); ++row) {
      ExpectRow(y.Row(row), weights, inputs.Row(row), activation);
    }
    y.ExpectIntact();
  }

  RandomSource random_{1};
};

TEST_P(DenseTest, MultipliesByWeightsOfEveryType) {
  for (const DataType type :
       {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16}) {
    for (const DataType stored : kStoredTypes) {
      for (const bool has_bias : {false, true}) {
        const TestWeights weights({.segments = {17, 5},
                                   .cols = 33,
                                   .type = type,
                                   .stored = stored,
                                   .has_bias = has_bias},
                                  random_);
        ExpectProject(weights, Matrix::Random(7, 33, random_),
                      Activation::kNone);
      }
    }
  }
}

TEST_P(DenseTest, MultipliesMatricesOfEverySize) {
  const std::vector<std::vector<int64_t>> segments = {
      {1}, {16}, {64}, {65}, {130}, {5, 33, 64}, {1, 1, 1}, {15, 16, 17}};
  const int64_t num_rows[] = {1, 2, 3, 4, 5, 6, 7, 13, 40};
  size_t size = 0;
  for (const DataType stored : kStoredTypes) {
    for (const int64_t cols : {1, 2, 3, 15, 16, 17, 31, 32, 33, 97}) {
      for (const std::vector<int64_t>& rows : segments) {
        const TestWeights weights({.segments = rows,
                                   .cols = cols,
                                   .stored = stored,
                                   .has_bias = true},
                                  random_);
        const int64_t batch = num_rows[size++ % std::size(num_rows)];
        ExpectProject(weights, Matrix::Random(batch, cols, random_),
                      Activation::kNone);
      }
    }
  }
}

TEST_P(DenseTest, AppliesSiluToTheSum) {
  for (const DataType stored : kStoredTypes) {
    const TestWeights weights(
        {.segments = {33, 70}, .cols = 19, .stored = stored, .has_bias = true},
        random_);
    ExpectProject(weights, Matrix::Random(8, 19, random_), Activation::kSilu);
  }
}

TEST_P(DenseTest, KnowsSiluOfAnyNumber) {
  const TestBackend backend = Make({.max_rows = 1, .max_inputs = 1});
  TestWeights weights({.segments = {1}, .cols = 1}, random_);
  weights.Set(0, 0, 1);
  const auto dense = backend->MakeDense(weights.source());
  ASSERT_TRUE(dense.ok());
  const auto silu = [&](float number) {
    Matrix x = Matrix::Random(1, 1, random_);
    x.Row(0)[0] = number;
    Matrix y(1, 1);
    backend->Project(**dense, x.view(), Activation::kSilu, y.view());
    return y.Row(0)[0];
  };
  for (const float magnitude : {0.0f, 1e-30f, 1e-5f, 0.3f, 1.0f, 20.0f, 86.0f,
                                87.0f, 88.0f, 89.0f, 1e3f, 1e30f}) {
    for (const float number : {magnitude, -magnitude}) {
      const double expected = number / (1 + std::exp(-double{number}));
      // e^88 is the largest power: far below, a little is left of a number.
      const double left = number < -87 ? 1e-8 : 0;
      EXPECT_NEAR(silu(number), expected,
                  left + kSiluTolerance * std::fabs(expected));
    }
  }
  for (const float fault : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    EXPECT_FALSE(std::isfinite(silu(fault))) << fault;
  }
}

TEST_P(DenseTest, AddsToWhatIsThere) {
  for (const DataType stored : kStoredTypes) {
    for (const bool has_bias : {false, true}) {
      const TestWeights weights({.segments = {37},
                                 .cols = 21,
                                 .stored = stored,
                                 .has_bias = has_bias},
                                random_);
      const TestBackend backend = Make({.max_rows = 5, .max_inputs = 21});
      const auto dense = backend->MakeDense(weights.source());
      ASSERT_TRUE(dense.ok());
      const Matrix x = Matrix::Random(5, 21, random_);
      const Matrix before = Matrix::Random(5, 37, random_);
      const Matrix y = Matrix::Chosen(before, {0, 1, 2, 3, 4});
      backend->ProjectAndAdd(**dense, x.view(), y.view());
      const Matrix inputs = Rounded(x, stored);
      for (int64_t row = 0; row < 5; ++row) {
        for (const TestWeights::Output& output : weights.outputs()) {
          ExpectElement(y.Row(row)[output.column],
                        before.Row(row)[output.column], output, inputs.Row(row),
                        Activation::kNone);
        }
      }
      y.ExpectZeroPadding();
      y.ExpectIntact();
    }
  }
}

TEST_P(DenseTest, GivesEachRowTheSameBitsAloneAndInACrowd) {
  for (const DataType stored : kAllStoredTypes) {
    const TestWeights weights(
        {.segments = {130, 33}, .cols = 67, .stored = stored, .has_bias = true},
        random_);
    const Matrix x = Matrix::Random(kMaxRows, 67, random_);
    // One row is of no use, which is its own affair.
    x.Row(11)[5] = std::nanf("");
    const int64_t outputs = weights.padded_outputs();
    const Matrix before = Matrix::Random(kMaxRows, outputs, random_);
    ExpectSameBitsAloneAndInACrowd(
        {.max_rows = kMaxRows, .max_inputs = 67}, kMaxRows,
        [&](Backend& backend, const std::vector<int>& rows) {
          const auto dense = backend.MakeDense(weights.source());
          Matrix y = Matrix::Chosen(before, rows);
          const Matrix chosen = Matrix::Chosen(x, rows);
          backend.ProjectAndAdd(**dense, chosen.view(), y.view());
          return y.Bits();
        });
  }
}

TEST_P(DenseTest, GivesASegmentTheSameBitsAloneAndAmongOthers) {
  for (const DataType stored : kAllStoredTypes) {
    const TestWeights weights({.segments = {17, 70, 33},
                               .cols = 45,
                               .stored = stored,
                               .has_bias = false},
                              random_);
    const TestBackend backend = Make({.max_rows = 3, .max_inputs = 45});
    const Matrix x = Matrix::Random(3, 45, random_);
    const auto project = [&](const DenseSource& source, int64_t outputs) {
      const auto dense = backend->MakeDense(source);
      Matrix y(3, outputs);
      backend->Project(**dense, x.view(), Activation::kSilu, y.view());
      return y.Bits();
    };
    const std::vector<Bits> all =
        project(weights.source(), weights.padded_outputs());
    int64_t column = 0;
    for (const WeightRows& segment : weights.source().segments) {
      DenseSource alone = weights.source();
      alone.segments = {segment};
      const std::vector<Bits> part = project(alone, Padded(segment.rows));
      for (int64_t row = 0; row < 3; ++row) {
        const auto begin = all[row].begin() + column;
        EXPECT_EQ(Bits(begin, begin + Padded(segment.rows)), part[row]);
      }
      column += Padded(segment.rows);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, DenseTest, EveryBackend(), BackendName);

}  // namespace
}  // namespace flash
