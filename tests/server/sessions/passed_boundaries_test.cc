#include "server/sessions/passed_boundaries.h"

#include "gtest/gtest.h"
#include "server/sessions/sha256.h"

namespace flash {
namespace {

// One key for each letter.
std::vector<PrefixKey> KeysOf(std::string_view letters) {
  std::vector<PrefixKey> keys;
  for (size_t n = 0; n < letters.size(); ++n) {
    keys.push_back(Sha256({letters.substr(n, 1)}));
  }
  return keys;
}

TEST(PassedBoundariesTest, SaysHowFarAnEarlierPromptWasTheSame) {
  PassedBoundaries passed(64);
  EXPECT_EQ(passed.Pass(KeysOf("abcd")), 0);
  EXPECT_EQ(passed.Pass(KeysOf("abxy")), 2);
  EXPECT_EQ(passed.Pass(KeysOf("abcz")), 3);
  EXPECT_EQ(passed.Pass(KeysOf("abxy")), 4);
  EXPECT_EQ(passed.Pass(KeysOf("")), 0);
}

TEST(PassedBoundariesTest, KnowsWhichAreWanted) {
  PassedBoundaries passed(64);
  const auto keys = KeysOf("abc");
  passed.Pass(keys);
  passed.Want(keys[1]);
  EXPECT_FALSE(passed.IsWanted(keys[0]));
  EXPECT_TRUE(passed.IsWanted(keys[1]));
  EXPECT_EQ(passed.Pass(keys), 3);
  EXPECT_TRUE(passed.IsWanted(keys[1]));
}

TEST(PassedBoundariesTest, ForgetsOldOnesForNewOnes) {
  PassedBoundaries passed(1);  // all in one place
  passed.Pass(KeysOf("a"));
  passed.Want(KeysOf("a")[0]);
  EXPECT_EQ(passed.Pass(KeysOf("b")), 0);
  EXPECT_EQ(passed.Pass(KeysOf("a")), 0);
  EXPECT_FALSE(passed.IsWanted(KeysOf("a")[0]));
}

TEST(PassedBoundariesTest, NeedsOnlyTheDeepestToKnowTheOnesBefore) {
  PassedBoundaries passed(1);
  passed.Pass(KeysOf("ab"));
  EXPECT_EQ(passed.Pass(KeysOf("b")), 1);  // "a" had to make room
}

}  // namespace
}  // namespace flash
