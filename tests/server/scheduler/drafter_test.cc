#include "server/scheduler/drafter.h"

#include <random>

#include "gmock/gmock.h"

namespace flash {
namespace {

using testing::ElementsAre;

std::vector<int32_t> Propose(Drafter& drafter, int max_drafted,
                             float least_chance = 1e-6f) {
  const std::span<const int32_t> run =
      drafter.Propose(max_drafted, least_chance);
  return {run.begin(), run.end()};
}

void Append(Drafter& drafter, const std::vector<int32_t>& ids) {
  drafter.Append(ids);
}

TEST(DrafterTest, GuessesWhatFollowedTheLastTokensBefore) {
  Drafter drafter(100);
  Append(drafter, {1, 2, 3, 4, 5, 6, 7, 9, 1, 2, 3});
  EXPECT_THAT(Propose(drafter, 4), ElementsAre(3, 4, 5, 6, 7));
  EXPECT_THAT(Propose(drafter, 2), ElementsAre(3, 4, 5));
  EXPECT_THAT(Propose(drafter, 0), ElementsAre(3));
}

TEST(DrafterTest, GuessesNothingAfterTokensThatAreNew) {
  Drafter drafter(100);
  Append(drafter, {1});
  EXPECT_THAT(Propose(drafter, 4), ElementsAre(1));
  Append(drafter, {2, 3, 4, 5, 2});
  EXPECT_THAT(Propose(drafter, 4), ElementsAre(2));  // 5 2 is new
}

TEST(DrafterTest, PrefersThreeTokensToTwoAndLaterPlacesToEarlierOnes) {
  Drafter drafter(100);
  Append(drafter, {1, 2, 3, 40, 1, 2, 3, 50, 9, 2, 3, 60, 1, 2, 3});
  EXPECT_THAT(Propose(drafter, 1), ElementsAre(3, 50));
  Append(drafter, {70, 8, 2, 3});
  EXPECT_THAT(Propose(drafter, 1), ElementsAre(3, 70));
}

TEST(DrafterTest, GoesOnWithAPeriodThatIsShorterThanWhatIsGuessed) {
  Drafter drafter(100);
  Append(drafter, {5, 1, 2, 1, 2, 1});
  EXPECT_THAT(Propose(drafter, 5), ElementsAre(1, 2, 1, 2, 1, 2));
  Append(drafter, {7, 7, 7});
  EXPECT_THAT(Propose(drafter, 5), ElementsAre(7, 7, 7, 7, 7, 7));
}

TEST(DrafterTest, RemembersItsWindowAndNoMore) {
  for (const int64_t window : {4, 16, 64, 1024}) {
    Drafter drafter(window);
    Append(drafter, {1, 2, 3, 99});
    for (int64_t n = 0; n < window - 7; ++n) drafter.Append(9);
    Append(drafter, {1, 2, 3});
    const bool fits = window >= 7;
    EXPECT_EQ(Propose(drafter, 1).size(), fits ? 2u : 1u) << window;
    for (int64_t n = 0; n < window; ++n) drafter.Append(9);
    Append(drafter, {1, 2, 3});
    EXPECT_THAT(Propose(drafter, 1), ElementsAre(3)) << window;
  }
}

TEST(DrafterTest, GuessesWhatASearchThroughTheWholeTextFinds) {
  std::mt19937 random(1);
  Drafter drafter(10000);
  std::vector<int32_t> ids;
  int num_periods = 0;
  int num_found = 0;
  for (int n = 0; n < 3000; ++n) {
    // Stretches of it come again.
    ids.push_back(n > 50 && random() % 8 != 0
                      ? ids[ids.size() - 37]
                      : static_cast<int32_t>(random() % 50));
    drafter.Append(ids.back());
    size_t period = 0;
    for (const size_t size : {3, 2}) {
      for (size_t p = 1; period == 0 && p + size <= ids.size(); ++p) {
        if (std::equal(ids.end() - size, ids.end(), ids.end() - size - p)) {
          period = p;
        }
      }
    }
    std::vector<int32_t> expected = {ids.back()};
    for (size_t i = 0; period > 0 && i < 3; ++i) {
      expected.push_back(i < period ? ids[ids.size() - period + i]
                                    : expected[1 + i - period]);
    }
    num_periods += period > 0;
    num_found += period > 0 && Propose(drafter, 3) == expected;
  }
  EXPECT_GT(num_periods, 2000);
  // Grams that share a place forget each other now and then.
  EXPECT_GT(num_found, 0.9 * num_periods);
}

TEST(DrafterTest, GuessesTheMoreTheMoreOftenItIsRight) {
  Drafter drafter(1000);
  size_t before = 0;
  for (int n = 0; n < 60; ++n) {
    drafter.Append(7);
    const size_t drafted = Propose(drafter, 14, 0.25f).size() - 1;
    EXPECT_GE(drafted, before);
    before = drafted;
  }
  EXPECT_EQ(before, 14u);
  // Fewer where a wrong one costs more, and none that has to be right.
  EXPECT_LT(Propose(drafter, 1000, 0.9f).size(),
            Propose(drafter, 1000, 0.5f).size());
  EXPECT_EQ(Propose(drafter, 14, 0.9999999f).size(), 1u);
}

TEST(DrafterTest, GuessesNothingWhereItWouldHaveBeenWrongAndLearnsForNothing) {
  Drafter drafter(1000);
  // 1 2 comes again and again, and something else follows each time.
  for (int32_t n = 0; n < 20; ++n) Append(drafter, {1, 2, 100 + n});
  Append(drafter, {1, 2});
  EXPECT_THAT(Propose(drafter, 14, 0.25f), ElementsAre(2));
  // Now the same follows each time.
  for (int32_t n = 0; n < 20; ++n) Append(drafter, {50 + n, 1, 2, 3});
  Append(drafter, {1, 2});
  EXPECT_THAT(Propose(drafter, 1, 0.25f), ElementsAre(2, 3));
}

TEST(DrafterTest, PausesUntilTheNextToken) {
  Drafter drafter(100);
  Append(drafter, {7, 7, 7, 7});
  drafter.Pause();
  EXPECT_THAT(Propose(drafter, 2), ElementsAre(7));
  drafter.Append(7);
  EXPECT_THAT(Propose(drafter, 2), ElementsAre(7, 7, 7));
}

TEST(DrafterTest, ACopyGoesOnIndependently) {
  Drafter drafter(100);
  Append(drafter, {1, 2, 3, 4, 1, 2});
  Drafter copy = drafter;
  copy.Append(5);
  EXPECT_THAT(Propose(drafter, 2), ElementsAre(2, 3, 4));
  EXPECT_THAT(Propose(copy, 2), ElementsAre(5));
}

}  // namespace
}  // namespace flash
