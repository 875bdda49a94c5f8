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

TEST(FlagValuesTest, WantsAServerAndItsPort) {
  for (const char* right :
       {"localhost:1", "10.0.0.1:65535", "[::1]:8500",
        "dns:///flash-server:8500", "unix:/run/flash.socket"}) {
    EXPECT_TRUE(CheckServer(right).ok()) << right;
  }
  for (const char* wrong : {"", "localhost", "localhost:", ":8500", "a:0",
                            "a:65536", "a:http", "a:-1", "[::1]"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(CheckServer(wrong))) << wrong;
  }
  EXPECT_THAT(std::string(CheckServer("localhost").message()),
              HasSubstr("--server is \"localhost\"; it must be HOST:PORT"));
  EXPECT_THAT(std::string(CheckServer("").message()),
              HasSubstr("--server is empty"));
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
