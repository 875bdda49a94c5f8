// Products of int8 weights against their definition: sums of integers that are
// exact, so that the results are compared bit by bit on every instruction set.

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "tests/kernels/backend_fixture.h"
#include "tests/kernels/test_weights.h"

namespace flash {
namespace {

// What backend.h says that numbers become.
struct Rounded {
  float scale = 0;
  std::vector<int64_t> integers;
};

Rounded Round(const std::vector<float>& numbers) {
  float largest = 0;
  for (const float number : numbers) {
    largest = std::max(largest, std::fabs(number));
  }
  Rounded rounded = {.scale = largest / 127, .integers = {}};
  if (rounded.scale < 0x1p-100f) rounded.scale = 0;
  for (const float number : numbers) {
    const float inverse = rounded.scale == 0 ? 0 : 1 / rounded.scale;
    rounded.integers.push_back(std::llrint(number * inverse));
  }
  return rounded;
}

std::vector<float> RowOf(const Matrix& x, int64_t row) {
  return {x.Row(row), x.Row(row) + x.cols()};
}

// Element n of W x + bias, as backend.h defines it.
float Product(const TestWeights::Output& output, const std::vector<float>& x) {
  const Rounded w = Round({output.weights.begin(), output.weights.end()});
  const Rounded inputs = Round(x);
  int64_t sum = 0;
  for (size_t k = 0; k < x.size(); ++k) {
    sum += w.integers[k] * inputs.integers[k];
  }
  const float scale = inputs.scale * w.scale;
  return static_cast<float>(sum) * scale + static_cast<float>(output.bias);
}

class DenseInt8Test : public BackendTest {
 protected:
  static TestWeights::Shape Shape(std::vector<int64_t> segments, int64_t cols,
                                  DataType type = DataType::kFloat32) {
    return {.segments = std::move(segments),
            .cols = cols,
            .type = type,
            .stored = DataType::kInt8,
            .has_bias = true};
  }

  // All of W x + bias, padding included.
  Matrix Project(const TestWeights& weights, const Matrix& x,
                 Activation activation = Activation::kNone) const {
    const TestBackend backend =
        Make({.max_rows = x.rows(), .max_inputs = x.cols()});
    const auto dense = backend->MakeDense(weights.source());
    EXPECT_TRUE(dense.ok()) << dense.status();
    Matrix y(x.rows(), weights.padded_outputs());
    backend->Project(**dense, x.view(), activation, y.view());
    y.ExpectIntact();
    return y;
  }

  void ExpectProject(const TestWeights& weights, const Matrix& x) const {
    const Matrix y = Project(weights, x);
    Matrix expected(y.rows(), y.cols());
    for (int64_t row = 0; row < x.rows(); ++row) {
      std::fill_n(expected.Row(row), y.cols(), 0.0f);
      for (const TestWeights::Output& output : weights.outputs()) {
        expected.Row(row)[output.column] = Product(output, RowOf(x, row));
      }
    }
    EXPECT_EQ(y.Bits(), expected.Bits());
  }

  RandomSource random_{1};
};

TEST_P(DenseInt8Test, GivesTheExactSumForWeightsOfEveryType) {
  for (const DataType type :
       {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16}) {
    const TestWeights weights(Shape({17, 5}, 33, type), random_);
    ExpectProject(weights, Matrix::Random(7, 33, random_));
  }
}

TEST_P(DenseInt8Test, GivesTheExactSumForMatricesOfEverySize) {
  const std::vector<std::vector<int64_t>> segments = {
      {1}, {16}, {64}, {65}, {130}, {5, 33, 64}, {1, 1, 1}, {15, 16, 17}};
  const int64_t num_rows[] = {1, 2, 3, 4, 5, 6, 7, 13, 40};
  size_t size = 0;
  for (const int64_t cols :
       {1, 2, 3, 4, 5, 7, 15, 16, 17, 18, 19, 31, 32, 33, 63, 64, 65, 258}) {
    for (const std::vector<int64_t>& rows : segments) {
      const TestWeights weights(Shape(rows, cols), random_);
      const int64_t batch = num_rows[size++ % std::size(num_rows)];
      ExpectProject(weights, Matrix::Random(batch, cols, random_));
    }
  }
}

TEST_P(DenseInt8Test, IsNearTheProductOfTheNumbersBeforeRounding) {
  const int64_t cols = 97;
  const TestWeights weights(Shape({70}, cols), random_);
  const Matrix x = Matrix::Random(5, cols, random_);
  const Matrix y = Project(weights, x);
  for (int64_t row = 0; row < x.rows(); ++row) {
    const double x_step = Round(RowOf(x, row)).scale;
    for (const TestWeights::Output& output : weights.outputs()) {
      const double w_step =
          Round({output.weights.begin(), output.weights.end()}).scale;
      double sum = output.bias;
      double tolerance = 1e-5;
      for (int64_t k = 0; k < cols; ++k) {
        const double w = output.weights[k];
        sum += w * x.Row(row)[k];
        // Each factor is off by half a step, at most.
        tolerance +=
            (std::fabs(w) * x_step + std::fabs(x.Row(row)[k]) * w_step) / 2 +
            x_step * w_step / 4;
      }
      EXPECT_NEAR(y.Row(row)[output.column], sum, tolerance);
    }
  }
}

TEST_P(DenseInt8Test, RoundsTiesToEven) {
  const std::vector<std::pair<float, float>> cases = {
      {127, 127}, {0.5f, 0},   {1.5f, 2},      {2.5f, 2},
      {-0.5f, 0}, {-1.5f, -2}, {-2.5f, -2},    {126.5f, 126},
      {0.49f, 0}, {0.51f, 1},  {-126.6f, -127}};
  const auto size = static_cast<int64_t>(cases.size());
  TestWeights weights(
      {.segments = {1}, .cols = size, .stored = DataType::kInt8}, random_);
  TestWeights unit(
      {.segments = {size}, .cols = size, .stored = DataType::kInt8}, random_);
  Matrix x = Matrix::Random(1, size, random_);
  Matrix basis = Matrix::Random(size, size, random_);
  for (int64_t k = 0; k < size; ++k) {
    weights.Set(0, k, cases[k].first);
    x.Row(0)[k] = cases[k].first;
    for (int64_t n = 0; n < size; ++n) {
      unit.Set(n, k, n == k ? 127 : 0);
      basis.Row(n)[k] = n == k ? 127 : 0;
    }
  }
  const Matrix of_weights = Project(weights, basis);
  const Matrix of_inputs = Project(unit, x);
  for (int64_t k = 0; k < size; ++k) {
    EXPECT_EQ(of_weights.Row(k)[0], 127 * cases[k].second) << cases[k].first;
    EXPECT_EQ(of_inputs.Row(0)[k], 127 * cases[k].second) << cases[k].first;
  }
}

TEST_P(DenseInt8Test, ZerosAndWhatIsNextToNothingGiveTheBias) {
  for (const float nothing : {0.0f, -0.0f, 1e-40f, 0x1p-100f}) {
    TestWeights weights(Shape({3}, 21), random_);
    const Matrix x = Matrix::Random(3, 21, random_);
    for (int64_t k = 0; k < 21; ++k) {
      weights.Set(1, k, nothing);
      x.Row(2)[k] = nothing;
    }
    const Matrix y = Project(weights, x);
    const std::vector<TestWeights::Output> outputs = weights.outputs();
    for (int64_t n = 0; n < 3; ++n) {
      EXPECT_EQ(y.Row(n)[1], outputs[1].bias);
      EXPECT_EQ(y.Row(2)[n], outputs[n].bias);
    }
    ExpectProject(weights, x);
  }
}

TEST_P(DenseInt8Test, KnowsTheSmallestAndTheLargestNumbers) {
  for (const float magnitude : {0x1p-93f, 0x1p-92f, 1e-10f, 1e10f, 1e30f}) {
    TestWeights weights(Shape({2}, 5), random_);
    const Matrix x = Matrix::Random(2, 5, random_);
    for (int64_t k = 0; k < 5; ++k) x.Row(1)[k] *= magnitude;
    ExpectProject(weights, x);
    for (int64_t k = 0; k < 5; ++k) {
      weights.Set(1, k, static_cast<float>(k - 2) * magnitude);
      x.Row(1)[k] /= magnitude;
    }
    ExpectProject(weights, x);
  }
}

TEST_P(DenseInt8Test, SumsTheDeepestProductExactly) {
  for (const float weight : {1.0f, -1.0f}) {
    TestWeights weights(Shape({1}, kMaxInt8Inputs), random_);
    for (int64_t k = 0; k < kMaxInt8Inputs; ++k) weights.Set(0, k, weight);
    const Matrix x = Matrix::Random(2, kMaxInt8Inputs, random_);
    std::fill_n(x.Row(0), kMaxInt8Inputs, 1.0f);
    std::fill_n(x.Row(1), kMaxInt8Inputs, -1.0f);
    ExpectProject(weights, x);
  }
}

TEST_P(DenseInt8Test, RefusesADeeperProduct) {
  const TestBackend backend = Make();
  const TestWeights weights(Shape({1}, kMaxInt8Inputs + 1), random_);
  const absl::Status status = backend->MakeDense(weights.source()).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(testing::HasSubstr("133145"),
                             testing::HasSubstr("133144")));
}

TEST_P(DenseInt8Test, ANumberThatIsNotFiniteSpoilsItsOwnRowAndAllOfIt) {
  const TestWeights weights(Shape({70}, 40), random_);
  for (const float fault : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    for (const int64_t place : {0, 7, 16, 39}) {
      const Matrix x = Matrix::Random(3, 40, random_);
      x.Row(1)[place] = fault;
      const Matrix y = Project(weights, x);
      for (const TestWeights::Output& output : weights.outputs()) {
        EXPECT_EQ(y.Row(0)[output.column], Product(output, RowOf(x, 0)));
        EXPECT_TRUE(std::isnan(y.Row(1)[output.column])) << fault;
        EXPECT_EQ(y.Row(2)[output.column], Product(output, RowOf(x, 2)));
      }
    }
  }
}

TEST_P(DenseInt8Test, AppliesSiluToTheProduct) {
  const TestWeights weights(Shape({33, 70}, 19), random_);
  const Matrix x = Matrix::Random(8, 19, random_);
  const Matrix y = Project(weights, x, Activation::kSilu);
  for (int64_t row = 0; row < x.rows(); ++row) {
    for (const TestWeights::Output& output : weights.outputs()) {
      const double product = Product(output, RowOf(x, row));
      const double silu = product / (1 + std::exp(-product));
      EXPECT_NEAR(y.Row(row)[output.column], silu, 1e-6 * std::fabs(silu));
    }
  }
}

TEST_P(DenseInt8Test, AddsToWhatIsThere) {
  const TestWeights weights(Shape({37}, 21), random_);
  const TestBackend backend = Make({.max_rows = 5, .max_inputs = 21});
  const auto dense = backend->MakeDense(weights.source());
  ASSERT_TRUE(dense.ok());
  const Matrix x = Matrix::Random(5, 21, random_);
  const Matrix before = Matrix::Random(5, 37, random_);
  const Matrix y = Matrix::Chosen(before, {0, 1, 2, 3, 4});
  backend->ProjectAndAdd(**dense, x.view(), y.view());
  for (int64_t row = 0; row < 5; ++row) {
    for (const TestWeights::Output& output : weights.outputs()) {
      EXPECT_EQ(y.Row(row)[output.column], before.Row(row)[output.column] +
                                               Product(output, RowOf(x, row)));
    }
  }
  y.ExpectZeroPadding();
  y.ExpectIntact();
}

INSTANTIATE_TEST_SUITE_P(Backends, DenseInt8Test, EveryBackend(), BackendName);

}  // namespace
}  // namespace flash
