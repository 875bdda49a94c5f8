#include "server/model/state_bytes.h"

#include "gtest/gtest.h"

namespace flash {
namespace {

TEST(StateBytesTest, LeavesNothingOfWhatIsWiped) {
  std::string bytes = "what somebody wrote, longer than a small string is";
  Wipe(bytes);
  EXPECT_EQ(bytes, std::string(bytes.size(), '\0'));
}

TEST(StateBytesTest, AppendsWhateverHasToMove) {
  std::string bytes;
  std::string expected;
  for (int size = 0; size < 2000; size += 7) {
    const std::string more(size, static_cast<char>('a' + size % 26));
    AppendAndWipe(bytes, more);
    expected += more;
    ASSERT_EQ(bytes, expected);
  }
}

TEST(StateBytesTest, SharesTheStateAsItIs) {
  const std::string state("a state\0with a zero in it", 25);
  EXPECT_EQ(*ShareState(state), state);
  EXPECT_TRUE(ShareState("")->empty());
}

}  // namespace
}  // namespace flash
