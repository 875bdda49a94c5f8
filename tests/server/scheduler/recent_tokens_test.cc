#include "server/scheduler/recent_tokens.h"

#include <vector>

#include "gmock/gmock.h"

namespace flash {
namespace {

using testing::ElementsAre;

TEST(RecentTokens, KnowsWhatWasGivenAndWhatWasGenerated) {
  RecentTokens recent(nullptr);
  recent.AppendPrompt(std::vector<int32_t>{5, 6});
  recent.Append(7, true);
  EXPECT_EQ(recent.num_tokens(), 3);
  EXPECT_THAT(recent.Last(),
              ElementsAre(RecentToken{5, false}, RecentToken{6, false},
                          RecentToken{7, true}));
  EXPECT_THAT(recent.Ids(1, 3), ElementsAre(6, 7));
  recent.Truncate(2);
  EXPECT_THAT(recent.Ids(0, 2), ElementsAre(5, 6));
}

TEST(RecentTokens, GoesOnAfterASnapshot) {
  Snapshot before;
  before.position = 1000;
  before.pending = {4};
  before.recent = {{3, false}, {4, true}};
  RecentTokens recent(&before);
  recent.Append(5, true);
  EXPECT_EQ(recent.num_tokens(), 1002);
  EXPECT_THAT(recent.Ids(1000, 1002), ElementsAre(4, 5));
  EXPECT_TRUE(recent.Knows(999));
  EXPECT_FALSE(recent.Knows(998));
  EXPECT_FALSE(recent.Knows(1003));
}

TEST(RecentTokens, RemembersAsManyAsPenaltiesLookBackAt) {
  for (const bool by_prompt : {true, false}) {
    RecentTokens recent(nullptr);
    const int32_t size = 3 * kMaxPenaltyWindow + 5;
    std::vector<int32_t> ids(size);
    for (int32_t i = 0; i < size; ++i) ids[i] = i;
    if (by_prompt) {
      recent.AppendPrompt(ids);
    } else {
      for (const int32_t id : ids) recent.Append(id, true);
    }
    EXPECT_EQ(recent.num_tokens(), size);
    const std::vector<RecentToken> last = recent.Last();
    ASSERT_EQ(last.size(), size_t{kMaxPenaltyWindow});
    EXPECT_EQ(last.front().id, size - kMaxPenaltyWindow);
    EXPECT_EQ(last.back().id, size - 1);
    EXPECT_TRUE(recent.Knows(size - kMaxPenaltyWindow));
    EXPECT_FALSE(recent.Knows(size - kMaxPenaltyWindow - 1));
  }
}

}  // namespace
}  // namespace flash
