// GatherRows() and OnHost(): the rows that were asked for, bit by bit.

#include <vector>

#include "tests/kernels/backend_fixture.h"

namespace flash {
namespace {

class GatherRowsTest : public BackendTest {};

TEST_P(GatherRowsTest, CopiesTheRowsThatAreNamedInTheirOrder) {
  const TestBackend backend = Make();
  RandomSource random(1);
  for (const int64_t cols : {1, 15, 16, 17, 50}) {
    const Matrix x = Matrix::Random(9, cols, random);
    const std::vector<int> rows = {8, 0, 3, 3};
    Matrix y(4, cols);
    backend->GatherRows(rows, x.view(), y.view());
    EXPECT_EQ(y.Bits(), Matrix::Chosen(x, rows).Bits());
    y.ExpectIntact();
  }
}

TEST_P(GatherRowsTest, ShowsTheHostTheSameNumbers) {
  const TestBackend backend = Make();
  RandomSource random(1);
  const Matrix x = Matrix::Random(3, 17, random);
  const MatrixView<const float> seen = *backend->OnHost(x.view());
  ASSERT_EQ(seen.rows, 3);
  ASSERT_EQ(seen.cols, 17);
  for (int64_t row = 0; row < 3; ++row) {
    for (int64_t col = 0; col < 17; ++col) {
      EXPECT_EQ(seen.Row(row)[col], x.Row(row)[col]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, GatherRowsTest, EveryBackend(), BackendName);

}  // namespace
}  // namespace flash
