#include "server/service/live_ids.h"

#include <utility>

#include "gtest/gtest.h"

namespace flash {
namespace {

TEST(LiveIdsTest, LendsAnIdToOneAtATime) {
  LiveIds ids;
  {
    auto lease = ids.Claim("owner", "a");
    ASSERT_TRUE(lease.ok());
    EXPECT_TRUE(absl::IsAlreadyExists(ids.Claim("owner", "a").status()));
    EXPECT_TRUE(ids.Claim("owner", "b").ok());  // and given back at once
    const LiveIds::Lease moved = *std::move(lease);
    EXPECT_EQ(ids.size(), 1);
  }
  EXPECT_EQ(ids.size(), 0);
  EXPECT_TRUE(ids.Claim("owner", "a").ok());
}

TEST(LiveIdsTest, DoesNotTellOneOwnerOfTheIdsOfAnother) {
  LiveIds ids;
  const auto lease = ids.Claim("owner", "a");
  EXPECT_TRUE(ids.Claim("another", "a").ok());
}

}  // namespace
}  // namespace flash
