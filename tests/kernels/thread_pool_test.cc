// Loops that are divided among threads: every task once, whatever the number of
// threads, and nothing left running.

#include "kernels/thread_pool.h"

#include <immintrin.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace flash {
namespace {

using testing::Each;

class ThreadPoolTest : public testing::TestWithParam<int> {
 protected:
  int num_threads() const { return GetParam(); }

  // One task for each thread, f(worker), since each waits for all the others.
  template <typename F>
  void RunOnEveryThread(ThreadPool& pool, F f) const {
    std::atomic<int> arrived{0};
    pool.ParallelFor(num_threads(), [&](int, int worker) {
      f(worker);
      arrived.fetch_add(1);
      while (arrived.load() < num_threads()) std::this_thread::yield();
    });
  }
};

TEST_P(ThreadPoolTest, RunsEveryTaskOnce) {
  ThreadPool pool(num_threads());
  ASSERT_EQ(pool.num_threads(), num_threads());
  for (int loop = 0; loop < 3000; ++loop) {
    std::vector<int> runs(loop % 301, 0);
    pool.ParallelFor(loop % 301, [&](int index, int) { ++runs[index]; });
    ASSERT_EQ(runs, std::vector<int>(runs.size(), 1)) << "loop " << loop;
  }
}

TEST_P(ThreadPoolTest, RunsAMillionTasksOnceEach) {
  ThreadPool pool(num_threads());
  std::vector<int> runs(1'000'000, 0);
  pool.ParallelFor(1'000'000, [&](int index, int) { ++runs[index]; });
  for (const int count : runs) ASSERT_EQ(count, 1);
}

TEST_P(ThreadPoolTest, GivesTasksThatRunAtOnceDifferentWorkers) {
  ThreadPool pool(num_threads());
  std::vector<std::atomic<int>> busy(num_threads());
  std::atomic<bool> is_shared{false};
  for (int loop = 0; loop < 500; ++loop) {
    pool.ParallelFor(50, [&](int, int worker) {
      if (busy.at(worker).fetch_add(1) != 0) is_shared = true;
      busy[worker].fetch_sub(1);
    });
  }
  EXPECT_FALSE(is_shared);
}

TEST_P(ThreadPoolTest, UsesEveryThread) {
  ThreadPool pool(num_threads());
  std::vector<int> runs(num_threads(), 0);
  RunOnEveryThread(pool, [&](int worker) { ++runs[worker]; });
  EXPECT_THAT(runs, Each(1));
}

TEST_P(ThreadPoolTest, ShowsTheCallerWhatTasksWrote) {
  ThreadPool pool(num_threads());
  std::vector<int> numbers(64, 0);
  for (int loop = 0; loop < 1000; ++loop) {
    pool.ParallelFor(64, [&](int index, int) { numbers[index] += index; });
    ASSERT_EQ(numbers[63], 63 * (loop + 1));
  }
}

// A product and a sum that depend on the mode; volatile, so that they are not
// computed by the compiler.
bool FlushesDenormals() {
  volatile float small = std::numeric_limits<float>::min();
  volatile float result = small * 0.5f;
  volatile float denormal = std::numeric_limits<float>::denorm_min();
  volatile float read = denormal * 0x1p100f;
  return result == 0 && read == 0;
}
bool RoundsToNearest() {
  volatile float one = 1;
  volatile float above = one + 0x1p-30f;
  volatile float below = one - 0x1p-30f;
  return above == 1 && below == 1;
}

// The caller's mode: denormals kept, rounded upwards.
constexpr unsigned kCallersMode = 0x1f80 | _MM_ROUND_UP;

TEST_P(ThreadPoolTest, RunsEveryTaskInTheOneMode) {
  ThreadPool pool(num_threads());
  const unsigned saved = _mm_getcsr();
  std::vector<char> right(num_threads(), 0);
  _mm_setcsr(kCallersMode);
  RunOnEveryThread(pool, [&](int worker) {
    right[worker] = FlushesDenormals() && RoundsToNearest();
  });
  _mm_setcsr(saved);
  EXPECT_THAT(right, Each(1));
}

TEST_P(ThreadPoolTest, GivesTheCallerItsModeBack) {
  ThreadPool pool(num_threads());
  const unsigned saved = _mm_getcsr();
  for (const int num_tasks : {0, 1, 100}) {
    _mm_setcsr(kCallersMode);
    pool.ParallelFor(num_tasks, [](int, int) {});
    const unsigned left = _mm_getcsr();
    _mm_setcsr(saved);
    EXPECT_EQ(left, kCallersMode);
  }
}

double ProcessSeconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * time.tv_nsec;
}

TEST_P(ThreadPoolTest, SleepsWhenThereIsNothingToDo) {
  using std::chrono_literals::operator""ms;
  ThreadPool pool(num_threads());
  pool.ParallelFor(100, [](int, int) {});
  std::this_thread::sleep_for(50ms);  // until the last thread stops to spin
  const double before = ProcessSeconds();
  std::this_thread::sleep_for(200ms);
  // A thread that did not sleep would have used the 200 ms.
  EXPECT_LT(ProcessSeconds() - before, 0.01);
  std::atomic<int> runs{0};
  pool.ParallelFor(100, [&](int, int) { runs.fetch_add(1); });
  EXPECT_EQ(runs.load(), 100);
}

TEST_P(ThreadPoolTest, MayBeDestroyedRightAfterALoop) {
  for (int life = 0; life < 200; ++life) {
    auto pool = std::make_unique<ThreadPool>(num_threads());
    std::atomic<int> runs{0};
    if (life % 3 != 0) {
      pool->ParallelFor(life, [&](int, int) { runs.fetch_add(1); });
      EXPECT_EQ(runs.load(), life);
    }
    pool.reset();
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Range(1, 9),
                         [](const auto& info) {
                           return std::to_string(info.param);
                         });

}  // namespace
}  // namespace flash
