#include "client/latency_samples.h"

#include "gtest/gtest.h"

namespace flash {
namespace {

TEST(LatencySamplesTest, IsZeroWithoutTimes) {
  const LatencySummary summary = LatencySamples().Summarize();
  EXPECT_EQ(summary.count, 0);
  EXPECT_EQ(summary.p99, 0);
}

TEST(LatencySamplesTest, GivesNearestRanks) {
  LatencySamples samples;
  for (int i = 1000; i >= 1; --i) samples.Add(i);
  const LatencySummary summary = samples.Summarize();
  EXPECT_EQ(summary.count, 1000);
  EXPECT_EQ(summary.mean, 500.5);
  EXPECT_EQ(summary.p50, 500);
  EXPECT_EQ(summary.p90, 900);
  EXPECT_EQ(summary.p99, 990);
  EXPECT_EQ(summary.p99_9, 999);
  EXPECT_EQ(summary.max, 1000);
}

TEST(LatencySamplesTest, GivesTheOnlyTimeAsEveryPercentile) {
  LatencySamples samples;
  samples.Add(3);
  EXPECT_EQ(samples.Summarize().p50, 3);
  EXPECT_EQ(samples.Summarize().p99_9, 3);
}

TEST(LatencySamplesTest, AddsUp) {
  LatencySamples one;
  LatencySamples two;
  one.Add(1);
  two.Add(2);
  two.Add(6);
  one.Add(two);
  EXPECT_EQ(one.count(), 3);
  EXPECT_EQ(one.Summarize().mean, 3);
  EXPECT_EQ(one.Summarize().max, 6);
}

TEST(LatencySamplesTest, KeepsAChoiceOfManyThatLooksLikeThem) {
  LatencySamples samples(1000);
  for (int i = 0; i < 100'000; ++i) samples.Add(i);
  const LatencySummary summary = samples.Summarize();
  EXPECT_EQ(summary.count, 100'000);
  EXPECT_EQ(summary.max, 99'999);
  EXPECT_DOUBLE_EQ(summary.mean, 49'999.5);
  // The median of 1000 uniform choices is within 5 % of the whole, but for one
  // time in a thousand; the choice is always the same one.
  EXPECT_NEAR(summary.p50, 50'000, 5'000);
}

}  // namespace
}  // namespace flash
