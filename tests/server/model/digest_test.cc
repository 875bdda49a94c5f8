#include "server/model/digest.h"

#include <set>

#include "gtest/gtest.h"

namespace flash {
namespace {

// The published answer for no bytes, with seed 0.
TEST(DigestTest, IsXxh3OfAHundredAndTwentyEightBits) {
  EXPECT_EQ(HexDigestOf(""), "99aa06d3014798d86001c324468d497f");
}

TEST(DigestTest, TellsEveryBitFromItsOpposite) {
  for (const size_t size : {1, 16, 100, 240, 1000, 5000}) {
    std::string bytes(size, 'd');
    std::set<std::string> digests = {DigestOf(bytes)};
    for (size_t at = 0; at < size; ++at) {
      bytes[at] ^= 1 << at % 8;
      digests.insert(DigestOf(bytes));
      bytes[at] ^= 1 << at % 8;
    }
    EXPECT_EQ(digests.size(), size + 1);
    EXPECT_EQ(digests.begin()->size(), kDigestBytes);
  }
}

}  // namespace
}  // namespace flash
