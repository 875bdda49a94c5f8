#include "server/service/workers.h"

#include <atomic>
#include <future>

#include "gtest/gtest.h"

namespace flash {
namespace {

TEST(WorkersTest, RunsWhatItTookBeforeItEnds) {
  std::atomic<int> num_run{0};
  {
    Workers workers(2, {});
    for (int i = 0; i < 50; ++i) {
      ASSERT_TRUE(workers.TryRun(1, [&num_run] { ++num_run; }).ok());
    }
  }
  EXPECT_EQ(num_run.load(), 50);
}

TEST(WorkersTest, RunsTheEndOfWhatBeganWhateverRoomThereIs) {
  std::atomic<int> num_run{0};
  {
    Workers workers(1, {.tasks = 1});
    for (int i = 0; i < 50; ++i) workers.Run([&num_run] { ++num_run; });
  }
  EXPECT_EQ(num_run.load(), 50);
}

// Workers whose one thread is held up until the end.
class BusyWorkers {
 public:
  explicit BusyWorkers(Workers::Room room) : workers_(1, room) {
    std::promise<void> started;
    EXPECT_TRUE(workers_
                    .TryRun(1000,
                            [this, &started] {
                              started.set_value();
                              gate_.get_future().wait();
                            })
                    .ok());
    started.get_future().wait();
  }
  ~BusyWorkers() { gate_.set_value(); }

  absl::Status TryRun(size_t num_bytes) {
    return workers_.TryRun(num_bytes, [] {});
  }

 private:
  std::promise<void> gate_;
  Workers workers_;
};

TEST(WorkersTest, RefusesMoreTasksThanItHasRoomFor) {
  BusyWorkers workers({.tasks = 1, .bytes = 100});
  EXPECT_TRUE(workers.TryRun(1).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(workers.TryRun(1)));
}

TEST(WorkersTest, RefusesMoreBytesThanItHasRoomFor) {
  BusyWorkers workers({.tasks = 10, .bytes = 100});
  EXPECT_TRUE(workers.TryRun(60).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(workers.TryRun(41)));
  EXPECT_TRUE(workers.TryRun(40).ok());
}

TEST(WorkersTest, TakesOneTaskWhateverItsSize) {
  BusyWorkers workers({.tasks = 10, .bytes = 100});
  EXPECT_TRUE(workers.TryRun(101).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(workers.TryRun(1)));
}

}  // namespace
}  // namespace flash
