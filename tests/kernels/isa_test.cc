// Which instruction sets there are, and what is said about those that this
// processor has not got.

#include "kernels/cpu/isa.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace flash::cpu {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

const std::vector<std::string> kFastestFirst = {"avx512bf16", "avx512", "avx2",
                                                "portable"};

TEST(IsaTest, EveryProcessorHasThePortableSet) {
  ASSERT_FALSE(SupportedIsas().empty());
  EXPECT_EQ(SupportedIsas().back(), "portable");
}

TEST(IsaTest, SupportedSetsStandInTheOrderOfTheirSpeed) {
  std::vector<std::string> expected;
  const std::vector<std::string> supported = SupportedIsas();
  for (const std::string& name : kFastestFirst) {
    if (std::count(supported.begin(), supported.end(), name) > 0) {
      expected.push_back(name);
    }
  }
  EXPECT_EQ(supported, expected);
}

TEST(IsaTest, AutoIsTheFastestSet) {
  const auto kernels = FindKernels("auto");
  ASSERT_TRUE(kernels.ok()) << kernels.status();
  EXPECT_EQ((*kernels)->name, SupportedIsas().front());
}

TEST(IsaTest, ASupportedSetIsFoundByItsName) {
  for (const std::string& name : SupportedIsas()) {
    const auto kernels = FindKernels(name);
    ASSERT_TRUE(kernels.ok()) << kernels.status();
    EXPECT_EQ((*kernels)->name, name);
  }
}

TEST(IsaTest, ASetThatThisProcessorHasNotGotIsUnavailable) {
  for (const std::string& name : kFastestFirst) {
    if (testing::Value(SupportedIsas(), Contains(name))) continue;
    const auto kernels = FindKernels(name);
    EXPECT_TRUE(absl::IsUnavailable(kernels.status())) << kernels.status();
    EXPECT_THAT(std::string(kernels.status().message()),
                AllOf(HasSubstr(name), HasSubstr("portable")));
  }
}

TEST(IsaTest, AnUnknownNameIsAnsweredWithTheKnownOnes) {
  for (const char* name : {"sse9", "", "AVX2", "avx512bf"}) {
    const auto kernels = FindKernels(name);
    ASSERT_TRUE(absl::IsInvalidArgument(kernels.status())) << name;
    for (const std::string& known : kFastestFirst) {
      EXPECT_THAT(std::string(kernels.status().message()), HasSubstr(known));
    }
  }
}

}  // namespace
}  // namespace flash::cpu
