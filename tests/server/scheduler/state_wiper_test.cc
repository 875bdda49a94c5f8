#include "server/scheduler/state_wiper.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace flash {
namespace {

TEST(StateWiperTest, DropsAllThatItIsGivenHoweverMuchWaits) {
  std::vector<std::weak_ptr<const std::string>> states;
  {
    StateWiper wiper;
    for (size_t i = 0; i < 10 * StateWiper::kMaxWaiting; ++i) {
      auto state = std::make_shared<const std::string>(100, 's');
      states.push_back(state);
      wiper.Drop(std::move(state));
    }
    wiper.Drop(nullptr);
  }
  for (const auto& state : states) EXPECT_TRUE(state.expired());
}

TEST(StateWiperTest, LeavesWhatOthersHold) {
  const auto state = std::make_shared<const std::string>("state");
  { StateWiper().Drop(state); }
  EXPECT_EQ(state.use_count(), 1);
  EXPECT_EQ(*state, "state");
}

}  // namespace
}  // namespace flash
