#include "server/service/text_workers.h"

#include <atomic>
#include <future>

#include "gtest/gtest.h"

namespace flash {
namespace {

TEST(TextWorkersTest, RunsWhatItTookBeforeItEnds) {
  std::atomic<int> num_run{0};
  {
    TextWorkers workers(2, 100);
    for (int i = 0; i < 50; ++i) {
      ASSERT_TRUE(workers.TryRun([&num_run] { ++num_run; }));
    }
  }
  EXPECT_EQ(num_run.load(), 50);
}

TEST(TextWorkersTest, RefusesWhatItHasNoRoomFor) {
  std::promise<void> started;
  std::promise<void> gate;
  TextWorkers workers(1, 1);
  ASSERT_TRUE(workers.TryRun([&] {
    started.set_value();
    gate.get_future().wait();
  }));
  started.get_future().wait();
  EXPECT_TRUE(workers.TryRun([] {}));
  EXPECT_FALSE(workers.TryRun([] {}));
  gate.set_value();
}

}  // namespace
}  // namespace flash
