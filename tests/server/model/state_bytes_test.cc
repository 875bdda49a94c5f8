#include "server/model/state_bytes.h"

#include "gtest/gtest.h"

namespace flash {
namespace {

TEST(StateBytesTest, LeavesNothingOfWhatIsWiped) {
  std::string bytes = "what somebody wrote, longer than a small string is";
  Wipe(bytes);
  EXPECT_EQ(bytes, std::string(bytes.size(), '\0'));
}

TEST(StateBytesTest, SharesTheStateAsItIs) {
  const std::string state("a state\0with a zero in it", 25);
  EXPECT_EQ(*ShareState(state), state);
  EXPECT_TRUE(ShareState("")->empty());
}

}  // namespace
}  // namespace flash
