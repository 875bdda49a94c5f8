#include "client/flag_values.h"

#include "gmock/gmock.h"

namespace flash {
namespace {

using testing::HasSubstr;

TEST(FlagValuesTest, TakesTimesUpToADay) {
  EXPECT_EQ(MillisecondsOf("wait", absl::ZeroDuration())->count(), 0);
  EXPECT_EQ(MillisecondsOf("wait", absl::Hours(24))->count(), 86'400'000);
  const auto negative = MillisecondsOf("wait", absl::Seconds(-1));
  EXPECT_TRUE(absl::IsInvalidArgument(negative.status()));
  EXPECT_THAT(std::string(negative.status().message()),
              HasSubstr("--wait is -1s"));
  EXPECT_FALSE(MillisecondsOf("wait", absl::InfiniteDuration()).ok());
}

TEST(FlagValuesTest, WantsAServer) {
  EXPECT_TRUE(CheckServer("localhost:1").ok());
  EXPECT_TRUE(absl::IsInvalidArgument(CheckServer("")));
}

TEST(FlagValuesTest, FindsWhereUtf8Ends) {
  const std::string valid = "a\u00e4\u20ac\U0001f600\U0010ffff";
  EXPECT_EQ(ValidUtf8Prefix(valid), valid.size());
  EXPECT_EQ(ValidUtf8Prefix(""), 0u);
  // A lone byte that continues, a lead that never is one, an overlong form, a
  // surrogate, beyond U+10FFFF, and characters that break off.
  for (const std::string wrong :
       {"\x80", "\xff", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80",
        "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xc3", "\xe2\x82", "\xe2\x82x",
        "\xf0\x9f\x98"}) {
    EXPECT_EQ(ValidUtf8Prefix("ab" + wrong + "c"), 2u);
    EXPECT_EQ(ValidUtf8Prefix("ab" + wrong), 2u);
  }
}

TEST(FlagValuesTest, NamesTheFlagThatIsNotUtf8) {
  EXPECT_TRUE(CheckUtf8("prompt", "\u00e4").ok());
  EXPECT_THAT(std::string(CheckUtf8("prompt", "ab\xff").message()),
              HasSubstr("--prompt is not valid UTF-8 from its byte 2"));
}

}  // namespace
}  // namespace flash
