// FindFaults(): a row with a number that is not finite is marked, and no other.

#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "tests/kernels/backend_fixture.h"

namespace flash {
namespace {

using testing::Each;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kLargest = std::numeric_limits<float>::max();

class FindFaultsTest : public BackendTest {
 protected:
  static std::vector<uint8_t> Run(const TestBackend& backend, const Matrix& x) {
    const Step step = StepOfSingleRows(std::vector<Row>(x.rows()));
    backend->BeginStep(step.view());
    backend->FindFaults(x.view());
    return backend.EndStep(x.rows());
  }

  RandomSource random_{1};
};

TEST_P(FindFaultsTest, FindsNoneInFiniteNumbers) {
  const TestBackend backend = Make();
  for (const int64_t cols : {1, 15, 16, 17, 50}) {
    Matrix x = Matrix::Random(9, cols, random_);
    x.Row(0)[0] = kLargest;
    x.Row(8)[cols - 1] = -kLargest;
    x.Row(4)[cols / 2] = std::numeric_limits<float>::denorm_min();
    EXPECT_THAT(Run(backend, x), Each(0));
  }
}

TEST_P(FindFaultsTest, FindsOneInAnyPlace) {
  const TestBackend backend = Make();
  for (const int64_t cols : {1, 15, 16, 17, 50}) {
    for (int64_t col = 0; col < cols; ++col) {
      const int64_t row = random_.Integer(0, 12);
      for (const float fault : {kNaN, -kNaN, kInfinity, -kInfinity}) {
        Matrix x = Matrix::Random(13, cols, random_);
        x.Row(row)[col] = fault;
        std::vector<uint8_t> expected(13, 0);
        expected[row] = 1;
        EXPECT_EQ(Run(backend, x), expected) << fault << " in column " << col;
      }
    }
  }
}

TEST_P(FindFaultsTest, ForgetsThemWhenTheNextStepBegins) {
  const TestBackend backend = Make();
  Matrix x = Matrix::Random(kMaxRows, 20, random_);
  for (int64_t row = 0; row < kMaxRows; ++row) x.Row(row)[3] = kNaN;
  EXPECT_THAT(Run(backend, x), Each(1));
  EXPECT_THAT(Run(backend, Matrix::Random(kMaxRows, 20, random_)), Each(0));
}

TEST_P(FindFaultsTest, KeepsThoseThatWereFoundEarlierInTheStep) {
  const TestBackend backend = Make();
  Matrix first = Matrix::Random(2, 20, random_);
  first.Row(1)[19] = kInfinity;
  const Step step = StepOfSingleRows(std::vector<Row>(2));
  backend->BeginStep(step.view());
  backend->FindFaults(first.view());
  backend->FindFaults(Matrix::Random(2, 20, random_).view());
  EXPECT_EQ(backend.EndStep(2), std::vector<uint8_t>({0, 1}));
}

INSTANTIATE_TEST_SUITE_P(Backends, FindFaultsTest, EveryBackend(), BackendName);

}  // namespace
}  // namespace flash
