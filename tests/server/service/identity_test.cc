#include "server/service/identity.h"

#include <grpcpp/test/server_context_test_spouse.h>

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace flash {
namespace {

// Who calls, with this metadata, by the key "x-tenant".
absl::StatusOr<std::string> OwnerWith(
    const std::vector<std::pair<std::string, std::string>>& metadata) {
  grpc::ServerContext context;
  grpc::testing::ServerContextTestSpouse spouse(&context);
  for (const auto& [key, value] : metadata) {
    spouse.AddClientMetadata(key, value);
  }
  return MakeOwnerOfMetadata("x-tenant")->OwnerOf(context);
}

TEST(IdentityTest, TakesTheOwnerFromTheMetadata) {
  EXPECT_EQ(*OwnerWith({{"x-tenant", "ann"}, {"other", "bob"}}), "ann");
}

TEST(IdentityTest, RefusesACallThatDoesNotSay) {
  EXPECT_TRUE(absl::IsUnauthenticated(OwnerWith({}).status()));
  EXPECT_TRUE(absl::IsUnauthenticated(OwnerWith({{"x-tenant", ""}}).status()));
}

TEST(IdentityTest, RefusesACallThatSaysTwice) {
  EXPECT_TRUE(absl::IsUnauthenticated(
      OwnerWith({{"x-tenant", "ann"}, {"x-tenant", "bob"}}).status()));
}

TEST(IdentityTest, RefusesNamesThatNobodyCanRead) {
  EXPECT_TRUE(
      absl::IsUnauthenticated(OwnerWith({{"x-tenant", "a\nb"}}).status()));
  EXPECT_TRUE(absl::IsUnauthenticated(
      OwnerWith({{"x-tenant", std::string(129, 'a')}}).status()));
}

TEST(IdentityTest, IsOneOwnerUnlessItIsToldOtherwise) {
  grpc::ServerContext context;
  EXPECT_EQ(*MakeOneOwner()->OwnerOf(context), "");
}

}  // namespace
}  // namespace flash
