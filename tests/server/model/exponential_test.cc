#include "server/model/exponential.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

namespace flash {
namespace {

TEST(ExpOfNonPositive, IsExactlyOneForZero) {
  EXPECT_EQ(ExpOfNonPositive(0.0f), 1.0f);
  EXPECT_EQ(ExpOfNonPositive(-0.0f), 1.0f);
}

TEST(ExpOfNonPositive, IsWithinTwoUnitsInTheLastPlace) {
  // Every 997th float of [-87, 0].
  const auto end = std::bit_cast<uint32_t>(-87.0f);
  for (uint32_t bits = 0x80000000; bits <= end; bits += 997) {
    const float x = std::bit_cast<float>(bits);
    const double exact = std::exp(static_cast<double>(x));
    const float nearest = static_cast<float>(exact);
    const double unit = nearest - std::nextafter(nearest, 0.0f);
    ASSERT_NEAR(ExpOfNonPositive(x), exact, 2 * unit) << x;
  }
}

TEST(ExpOfNonPositive, GivesFourTheSameBitsAsOne) {
  for (float x = 0; x >= -87; x -= 0.0137f) {
    const float next = std::max(x - 31.4f, -87.0f);
    const Float4 four = ExpOfNonPositive(Float4{x, next, -1.0f, -24.9f});
    ASSERT_EQ(four[0], ExpOfNonPositive(x));
    ASSERT_EQ(four[1], ExpOfNonPositive(next));
    ASSERT_EQ(four[2], ExpOfNonPositive(-1.0f));
    ASSERT_EQ(four[3], ExpOfNonPositive(-24.9f));
  }
}

}  // namespace
}  // namespace flash
