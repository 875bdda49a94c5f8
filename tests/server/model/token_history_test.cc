#include "server/model/token_history.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>
#include <utility>

namespace flash {
namespace {

// id -> {in_output, in_all}
using Counts = std::map<int32_t, std::pair<int32_t, int32_t>>;

Counts CountsOf(const TokenHistory& history) {
  Counts counts;
  for (const TokenHistory::Entry& entry : history.entries()) {
    EXPECT_EQ(counts.count(entry.id), 0) << "an id stands there twice";
    counts[entry.id] = {entry.in_output, entry.in_all};
  }
  return counts;
}

// The whole past, counted anew each time.
class OracleHistory {
 public:
  explicit OracleHistory(size_t window) : window_(window) {}

  void Append(int32_t id, bool output) {
    tokens_.push_back({id, output});
    if (tokens_.size() > window_) tokens_.pop_front();
  }
  Counts counts() const {
    Counts counts;
    for (const auto& [id, output] : tokens_) {
      counts[id].first += output ? 1 : 0;
      counts[id].second += 1;
    }
    return counts;
  }

 private:
  const size_t window_;
  std::deque<std::pair<int32_t, bool>> tokens_;
};

TEST(TokenHistory, CountsPromptAndOutputApart) {
  TokenHistory history(10);
  history.AppendPrompt(std::vector<int32_t>{7, 8, 7});
  history.AppendOutput(7);
  history.AppendOutput(9);
  EXPECT_EQ(CountsOf(history), (Counts{{7, {1, 3}}, {8, {0, 1}}, {9, {1, 1}}}));
}

TEST(TokenHistory, ForgetsTheOldestTokenOfTheWindow) {
  TokenHistory history(3);
  history.AppendPrompt(std::vector<int32_t>{1, 2});
  history.AppendOutput(3);
  history.AppendOutput(4);  // 1 falls out
  EXPECT_EQ(CountsOf(history), (Counts{{2, {0, 1}}, {3, {1, 1}}, {4, {1, 1}}}));
  history.AppendOutput(3);  // 2
  history.AppendOutput(3);  // the first 3
  EXPECT_EQ(CountsOf(history), (Counts{{3, {2, 2}}, {4, {1, 1}}}));
}

TEST(TokenHistory, RemembersNothingWithoutAWindow) {
  TokenHistory history(0);
  history.AppendPrompt(std::vector<int32_t>{1, 2});
  history.AppendOutput(3);
  EXPECT_TRUE(history.entries().empty());
}

TEST(TokenHistory, KeepsTheEndOfAPromptThatIsLongerThanTheWindow) {
  TokenHistory history(2);
  history.AppendPrompt(std::vector<int32_t>{1, 2, 3, 4});
  EXPECT_EQ(CountsOf(history), (Counts{{3, {0, 1}}, {4, {0, 1}}}));
}

TEST(TokenHistory, AgreesWithCountingAnew) {
  std::mt19937 random(3);
  for (const int32_t window : {1, 2, 3, 7, 64, 1000}) {
    for (const int32_t num_ids : {1, 3, 50, 2000}) {
      TokenHistory history(window);
      OracleHistory oracle(window);
      // Ids far apart and ids that share a home in the table.
      const int32_t stride = num_ids % 2 == 0 ? 1 : 65536;
      for (int step = 0; step < 3000; ++step) {
        const auto id = static_cast<int32_t>(random() % num_ids) * stride;
        const bool output = step >= 500;
        if (output) {
          history.AppendOutput(id);
        } else {
          history.AppendPrompt(std::span(&id, 1));
        }
        oracle.Append(id, output);
        if (step % 37 == 0) {
          ASSERT_EQ(CountsOf(history), oracle.counts());
        }
      }
      ASSERT_EQ(CountsOf(history), oracle.counts());
    }
  }
}

TEST(TokenHistory, TakesTheHighestIdsThereAre) {
  TokenHistory history(2);
  history.AppendPrompt(std::vector<int32_t>{INT32_MAX, 0});
  history.AppendOutput(INT32_MAX);
  EXPECT_EQ(CountsOf(history), (Counts{{0, {0, 1}}, {INT32_MAX, {1, 1}}}));
}

TEST(TokenHistory, GoesOnIndependentlyInACopy) {
  TokenHistory history(4);
  history.AppendPrompt(std::vector<int32_t>{1, 2, 3});
  TokenHistory copy = history;
  copy.AppendOutput(4);
  copy.AppendOutput(5);
  history.AppendOutput(1);
  EXPECT_EQ(CountsOf(history), (Counts{{1, {1, 2}}, {2, {0, 1}}, {3, {0, 1}}}));
  EXPECT_EQ(CountsOf(copy),
            (Counts{{2, {0, 1}}, {3, {0, 1}}, {4, {1, 1}}, {5, {1, 1}}}));
}

TEST(TokenHistory, NeedsNoWindowBeyondAllTokens) {
  TokenHistory wide(1000);
  TokenHistory narrow(5);
  for (TokenHistory* history : {&wide, &narrow}) {
    history->AppendPrompt(std::vector<int32_t>{1, 2, 1});
    history->AppendOutput(2);
    history->AppendOutput(3);
  }
  EXPECT_EQ(CountsOf(wide), CountsOf(narrow));
}

}  // namespace
}  // namespace flash
