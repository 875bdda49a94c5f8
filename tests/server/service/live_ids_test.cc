#include "server/service/live_ids.h"

#include <utility>

#include "gtest/gtest.h"

namespace flash {
namespace {

TEST(LiveIdsTest, LendsAnIdToOneAtATime) {
  LiveIds ids;
  {
    auto lease = ids.Claim("a");
    ASSERT_TRUE(lease.ok());
    EXPECT_TRUE(absl::IsAlreadyExists(ids.Claim("a").status()));
    EXPECT_TRUE(ids.Claim("b").ok());  // and given back at once
    const LiveIds::Lease moved = *std::move(lease);
    EXPECT_EQ(ids.size(), 1);
  }
  EXPECT_EQ(ids.size(), 0);
  EXPECT_TRUE(ids.Claim("a").ok());
}

}  // namespace
}  // namespace flash
