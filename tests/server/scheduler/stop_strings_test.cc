#include "server/scheduler/stop_strings.h"

#include <gtest/gtest.h>

#include <random>

namespace flash {
namespace {

// Feeds the text byte by byte, and gives where the first match ends.
struct Found {
  int index = -1;
  size_t end = 0;
  friend bool operator==(const Found&, const Found&) = default;
};

Found FirstIn(const std::vector<std::string>& strings, std::string_view text) {
  const StopStrings stops(strings);
  StopSearch search(stops);
  const auto match = search.FindIn(text);
  return match ? Found{match->index, match->end} : Found{};
}

size_t HeldAfter(const std::vector<std::string>& strings,
                 std::string_view text) {
  const StopStrings stops(strings);
  StopSearch search(stops);
  search.PassOver(text);
  return search.num_held();
}

TEST(StopSearch, FindsNothingWithoutStrings) {
  EXPECT_EQ(FirstIn({}, "abc"), Found{});
  EXPECT_EQ(FirstIn({""}, "abc"), Found{});
  EXPECT_EQ(HeldAfter({}, "abc"), 0);
  EXPECT_EQ(HeldAfter({""}, "abc"), 0);
}

TEST(StopSearch, TakesTheStringThatIsCompleteFirst) {
  EXPECT_EQ(FirstIn({"bcd", "c"}, "abcd"), (Found{1, 3}));
  EXPECT_EQ(FirstIn({"d", "abc"}, "abcd"), (Found{1, 3}));
}

TEST(StopSearch, TakesTheLongestOfThoseThatEndTogether) {
  EXPECT_EQ(FirstIn({"c", "abc", "bc"}, "abc"), (Found{1, 3}));
}

TEST(StopSearch, TakesTheFirstOfEqualStrings) {
  EXPECT_EQ(FirstIn({"x", "ab", "ab"}, "ab"), (Found{1, 2}));
}

TEST(StopSearch, GoesOnFromOneTextToTheNext) {
  const StopStrings stops(std::vector<std::string>{"abcabd"});
  StopSearch search(stops);
  EXPECT_FALSE(search.FindIn("zabc"));
  EXPECT_EQ(search.num_held(), 3);
  EXPECT_FALSE(search.FindIn("abc"));  // falls back to its own border
  EXPECT_EQ(search.num_held(), 3);
  const auto match = search.FindIn("abdx");
  ASSERT_TRUE(match);
  EXPECT_EQ(match->end, 3);
}

TEST(StopSearch, CanMatchWhatOverlapsAStringThatWasPassedOver) {
  const StopStrings stops(std::vector<std::string>{"aa"});
  StopSearch search(stops);
  search.PassOver("aa");
  EXPECT_EQ(search.num_held(), 1);
  EXPECT_TRUE(search.FindIn("a"));
}

TEST(StopSearch, HoldsTheLongestEndThatMayBecomeAMatch) {
  EXPECT_EQ(HeldAfter({"stop"}, "xs"), 1);
  EXPECT_EQ(HeldAfter({"stop"}, "xsto"), 3);
  EXPECT_EQ(HeldAfter({"stop"}, "xstox"), 0);
  EXPECT_EQ(HeldAfter({"ab", "xxab"}, "xxa"), 3);
}

TEST(StopSearch, AgreesWithSearchingAnewAtEveryByte) {
  std::mt19937 random(4);
  const auto random_string = [&](size_t max_size) {
    std::string string(random() % max_size + 1, 'a');
    for (char& c : string) c = static_cast<char>('a' + random() % 2);
    return string;
  };
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> strings(random() % 4 + 1);
    for (std::string& string : strings) string = random_string(6);
    const std::string text = random_string(24);
    Found expected;
    for (size_t end = 1; end <= text.size() && expected.index < 0; ++end) {
      for (size_t i = 0; i < strings.size(); ++i) {
        const bool ends_here =
            std::string_view(text).substr(0, end).ends_with(strings[i]);
        const bool better = expected.index < 0 ||
                            strings[i].size() > strings[expected.index].size();
        if (ends_here && better) expected = {static_cast<int>(i), end};
      }
    }
    ASSERT_EQ(FirstIn(strings, text), expected) << text;
  }
}

}  // namespace
}  // namespace flash
