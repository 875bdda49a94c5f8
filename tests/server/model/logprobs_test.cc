#include "server/model/logprobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace flash {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// float32 terms, each within 2 units in the last place, and a float32 result.
constexpr double kTolerance = 1e-6;

std::vector<float> RandomLogits(int size, int seed, float spread) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(size);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

std::vector<double> OracleLogprobs(const std::vector<float>& logits) {
  const float highest = *std::max_element(logits.begin(), logits.end());
  long double sum = 0;
  for (const float logit : logits) {
    sum += std::exp(static_cast<long double>(logit) - highest);
  }
  std::vector<double> logprobs;
  for (const float logit : logits) {
    logprobs.push_back(static_cast<double>(logit - (highest + std::log(sum))));
  }
  return logprobs;
}

std::vector<int32_t> OracleOrder(const std::vector<float>& logits) {
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(),
                   [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  return ids;
}

Logprobs Of(const std::vector<float>& logits) {
  const auto logprobs = Logprobs::Of(logits);
  EXPECT_TRUE(logprobs.ok());
  return *logprobs;
}

TEST(Logprobs, AreTheLogarithmsOfTheSoftmax) {
  for (const int size : {1, 2, 15, 16, 17, 1000, 32003}) {
    for (const float spread : {0.0f, 1.0f, 10.0f, 60.0f}) {
      const std::vector<float> logits = RandomLogits(size, size, spread);
      const std::vector<double> expected = OracleLogprobs(logits);
      const Logprobs logprobs = Of(logits);
      for (int id = 0; id < size; ++id) {
        const double tolerance = kTolerance * (1 + std::abs(expected[id]));
        ASSERT_NEAR(logprobs.IdUnranked(id).logprob, expected[id], tolerance);
        ASSERT_LE(logprobs.IdUnranked(id).logprob, 0);
      }
    }
  }
}

TEST(Logprobs, DoNotDependOnWhatElseIsAsked) {
  const std::vector<float> logits = RandomLogits(5000, 1, 2);
  const Logprobs logprobs = Of(logits);
  const std::vector<TokenLogprob> most = logprobs.Top(kMaxLogprobs);
  ASSERT_EQ(most.size(), kMaxLogprobs);
  for (int k = 0; k <= kMaxLogprobs; ++k) {
    const std::vector<TokenLogprob> top = Of(logits).Top(k);
    ASSERT_EQ(top.size(), k);
    for (int i = 0; i < k; ++i) {
      EXPECT_EQ(top[i].id, most[i].id);
      EXPECT_EQ(top[i].logprob, most[i].logprob);
      EXPECT_EQ(top[i].logprob, logprobs.Id(top[i].id).logprob);
    }
  }
}

TEST(Logprobs, RankFromOneAndCountTheLowerIdFirst) {
  const std::vector<float> logits = {1, 3, 2, 3, -1, 3};
  const Logprobs logprobs = Of(logits);
  const int32_t expected[] = {5, 1, 4, 2, 6, 3};
  for (int id = 0; id < 6; ++id) EXPECT_EQ(logprobs.Id(id).rank, expected[id]);
  const int32_t order[] = {1, 3, 5, 2, 0, 4};
  const std::vector<TokenLogprob> top = logprobs.Top(20);
  ASSERT_EQ(top.size(), 6);
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(top[i].id, order[i]);
    EXPECT_EQ(top[i].rank, i + 1);
  }
}

TEST(Logprobs, AgreeWithAFullSort) {
  for (const int size : {1, 16, 1023, 1024, 1025, 20011}) {
    // Few values: many ties.
    std::vector<float> logits = RandomLogits(size, size, 3);
    for (float& logit : logits) logit = std::round(logit);
    const std::vector<int32_t> order = OracleOrder(logits);
    const Logprobs logprobs = Of(logits);
    const std::vector<TokenLogprob> top = logprobs.Top(20);
    ASSERT_EQ(top.size(), std::min(size, 20));
    for (size_t i = 0; i < top.size(); ++i) ASSERT_EQ(top[i].id, order[i]);
    for (int i = 0; i < size; i += 37) {
      ASSERT_EQ(logprobs.Id(order[i]).rank, i + 1);
    }
  }
}

TEST(Logprobs, FindTheMostLikelyInAscendingLogits) {
  std::vector<float> logits(50000);
  std::iota(logits.begin(), logits.end(), 0.0f);
  const std::vector<TokenLogprob> top = Of(logits).Top(3);
  EXPECT_EQ(top[0].id, 49999);
  EXPECT_EQ(top[2].id, 49997);
}

TEST(Logprobs, GiveAMaskedIdNoProbability) {
  const std::vector<float> logits = {0, -kInfinity, 0};
  const Logprobs logprobs = Of(logits);
  EXPECT_EQ(logprobs.Id(1).logprob, -kInfinity);
  EXPECT_EQ(logprobs.Id(1).rank, 3);
  EXPECT_NEAR(logprobs.Id(0).logprob, std::log(0.5), kTolerance);
  EXPECT_EQ(logprobs.Top(20).size(), 2);
}

TEST(Logprobs, RefuseWhatIsNotANumber) {
  for (const float bad : {std::nanf(""), kInfinity}) {
    for (const size_t at : {size_t{0}, size_t{16}, size_t{1600}}) {
      std::vector<float> logits(1601, 0.5f);
      logits[at] = bad;
      EXPECT_EQ(Logprobs::Of(logits).status().code(),
                absl::StatusCode::kInternal);
    }
  }
  const std::vector<float> nothing(5, -kInfinity);
  EXPECT_EQ(Logprobs::Of(nothing).status().code(), absl::StatusCode::kInternal);
}

TEST(Logprobs, TakeLogitsOfAnySize) {
  const std::vector<float> logits = {3e38f, -3e38f, 2.9e38f};
  const Logprobs logprobs = Of(logits);
  EXPECT_EQ(logprobs.Id(0).logprob, 0);
  EXPECT_EQ(logprobs.Id(1).rank, 3);
}

}  // namespace
}  // namespace flash
