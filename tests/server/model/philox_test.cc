#include "server/model/philox.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>

#include "server/model/sampling.h"

namespace flash {
namespace {

// The known answers that the authors publish with their Random123 library.
TEST(Philox, GivesThePublishedAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
                       {0xffffffff, 0xffffffff}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                       {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(UniformRandom, IsMadeOfTheFirstTwoWords) {
  // 0xe169c58d6627e8d5 >> 11, over 2^53.
  const double expected =
      static_cast<double>(0xe169c58d6627e8d5u >> 11) / 9007199254740992.0;
  EXPECT_EQ(UniformRandom({.seed = 0, .output_index = 0, .position = 0}),
            expected);
}

TEST(UniformRandom, DependsOnSeedOutputAndPositionInAllTheirBits) {
  std::set<double> numbers;
  int count = 0;
  for (int bit = 0; bit < 64; ++bit, count += 2) {
    numbers.insert(UniformRandom({.seed = uint64_t{1} << bit}));
    numbers.insert(UniformRandom({.position = uint64_t{1} << bit}));
  }
  for (int bit = 0; bit < 32; ++bit, ++count) {
    numbers.insert(UniformRandom({.output_index = uint32_t{1} << bit}));
  }
  EXPECT_EQ(numbers.size(), count);
}

TEST(UniformRandom, StaysBelowOneAndFillsTheInterval) {
  constexpr int kBins = 64;
  constexpr int kDraws = 64000;
  int bins[kBins] = {};
  for (uint64_t position = 0; position < kDraws; ++position) {
    const double u = UniformRandom({.seed = 42, .position = position});
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    ++bins[static_cast<int>(u * kBins)];
  }
  double chi_square = 0;
  for (const int count : bins) {
    const double expected = double{kDraws} / kBins;
    chi_square += (count - expected) * (count - expected) / expected;
  }
  // 63 degrees of freedom: 1 in 1000 fair generators would be above. The draws
  // are fixed, so this passes always or never.
  EXPECT_LT(chi_square, 103.4);
}

}  // namespace
}  // namespace flash
