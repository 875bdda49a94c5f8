#include "server/sessions/sha256.h"

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"

namespace flash {
namespace {

std::string Hex(const Sha256Digest& digest) {
  return absl::BytesToHexString(std::string(BytesOf(digest)));
}

// FIPS 180-4's own example.
TEST(Sha256Test, GivesThePublishedDigest) {
  EXPECT_EQ(Hex(Sha256({"abc"})),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256Test, IsOfThePartsOneAfterTheOther) {
  EXPECT_EQ(Sha256({"a", "", "bc"}), Sha256({"abc"}));
  EXPECT_NE(Sha256({"abc"}), Sha256({"acb"}));
}

}  // namespace
}  // namespace flash
