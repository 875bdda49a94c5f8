// The engine: a FakeModel behind the real thread and the real clock.

#include "server/scheduler/engine.h"

#include <atomic>
#include <thread>

#include "gmock/gmock.h"
#include "tests/server/scheduler/scheduler_fixture.h"

namespace flash {
namespace {

using absl::StatusCode;
using std::chrono::hours;
using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr int64_t kEndless = int64_t{1} << 40;  // tokens

class EngineTest : public testing::Test {
 protected:
  using Sink = std::shared_ptr<RecordingSink>;

  void Start(const FakeModel::Sizes& sizes = {}) {
    model_ = std::make_unique<FakeModel>(sizes);
    model_->before_step = before_step_;
    auto engine = Engine::Create(options_, model_.get(), &tokenizer_, nullptr);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
  }

  Sink Submit(Request request, Sink sink = std::make_shared<RecordingSink>()) {
    request.sink = sink;
    status_ = engine_->Submit(std::make_unique<Request>(std::move(request)));
    return sink;
  }

  // A request that never ends by itself, and has begun.
  Sink SubmitEndless() {
    Sink sink = std::make_shared<RecordingSink>();
    auto begun = std::make_shared<std::atomic<bool>>(false);
    sink->on_token = [begun](size_t) { *begun = true; };
    Submit(MakeRequest(Ids(3), kEndless), sink);
    while (!*begun) std::this_thread::yield();
    return sink;
  }

  EngineOptions options_;
  std::function<void()> before_step_;
  ByteTokenizer tokenizer_;
  std::unique_ptr<FakeModel> model_;
  std::unique_ptr<Engine> engine_;
  absl::Status status_;
};

TEST_F(EngineTest, AnswersRequestsFromManyThreads) {
  Start();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < 20; ++i) {
        auto sink = std::make_shared<RecordingSink>();
        auto request =
            std::make_unique<Request>(MakeRequest(Ids(1 + i), 1 + i % 7));
        request->sink = sink;
        request->sampling.seed = t;
        ASSERT_TRUE(engine_->Submit(std::move(request)).ok());
        sink->WaitUntilDone();
        EXPECT_TRUE(sink->status().ok());
        EXPECT_EQ(sink->outputs[0].ids.size(), 1u + i % 7);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  engine_->Stop(Clock::now() + hours(1));
  const EngineStats stats = engine_->stats();
  EXPECT_EQ(stats.finished_requests, 80);
  EXPECT_EQ(stats.free_slots, 4);
  EXPECT_EQ(stats.queued_requests, 0);
}

TEST_F(EngineTest, RefusesWhatCanNeverRun) {
  Start();
  Request request = MakeRequest(Ids(3), 1);
  request.num_outputs = 5;
  Submit(request);
  EXPECT_EQ(status_.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status_.message()), HasSubstr("num_outputs"));
}

TEST_F(EngineTest, RefusesOptionsThatCannotWork) {
  FakeModel model({.num_slots = 2, .max_rows = 8});
  const auto code = [&](const EngineOptions& options) {
    return Engine::Create(options, &model, &tokenizer_, nullptr)
        .status()
        .code();
  };
  EngineOptions options;
  options.max_step_rows = 9;
  EXPECT_EQ(code(options), StatusCode::kInvalidArgument);
  options.max_step_rows = 1;  // no room for a prompt beside a decoder
  EXPECT_EQ(code(options), StatusCode::kInvalidArgument);
  options.max_step_rows = 2;
  EXPECT_EQ(code(options), StatusCode::kOk);
  options.max_drafted_tokens = kMaxDraftedTokens + 1;
  EXPECT_EQ(code(options), StatusCode::kInvalidArgument);
  options.max_drafted_tokens = 0;
  options.max_queued_requests = 0;
  EXPECT_EQ(code(options), StatusCode::kInvalidArgument);
}

TEST_F(EngineTest, RefusesAtOnceWhenTheQueueIsFull) {
  options_.max_queued_requests = 2;
  Start({.num_slots = 1});
  Sink running = SubmitEndless();
  Sink first = Submit(MakeRequest(Ids(3), 1));
  Sink second = Submit(MakeRequest(Ids(3), 1));
  EXPECT_TRUE(status_.ok());
  EXPECT_EQ(engine_->stats().queued_requests, 2);
  EXPECT_EQ(engine_->stats().queued_tokens, 6);
  Sink third = Submit(MakeRequest(Ids(3), 1));
  EXPECT_EQ(status_.code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(third->done());
  running->cancelled = true;
  engine_->Notify();
  first->WaitUntilDone();
  second->WaitUntilDone();
}

TEST_F(EngineTest, NoticesACancelWhileItWaits) {
  Start();
  Sink sink = SubmitEndless();
  sink->full = true;  // so the engine has nothing to do
  sink->cancelled = true;
  engine_->Notify();
  sink->WaitUntilDone();
  EXPECT_EQ(sink->status().code(), StatusCode::kCancelled);
}

TEST_F(EngineTest, NoticesThatAReaderHasRoomAgain) {
  Start();
  Sink sink = std::make_shared<RecordingSink>();
  sink->full = true;
  Submit(MakeRequest(Ids(3), 5), sink);
  sink->full = false;
  engine_->Notify();
  sink->WaitUntilDone();
  EXPECT_TRUE(sink->status().ok());
}

TEST_F(EngineTest, WakesForADeadlineByItself) {
  options_.heartbeat_interval = hours(1);
  Start();
  Sink sink = std::make_shared<RecordingSink>();
  sink->full = true;
  Request request = MakeRequest(Ids(3), 5);
  request.deadline = Clock::now() + milliseconds(20);
  Submit(request, sink);
  sink->WaitUntilDone();
  EXPECT_EQ(sink->status().code(), StatusCode::kDeadlineExceeded);
}

TEST_F(EngineTest, ShowsThatItIsAliveWhileIdle) {
  options_.heartbeat_interval = milliseconds(5);
  Start();
  Clock::time_point last = engine_->stats().heartbeat;
  for (int beats = 0; beats < 20;) {
    const Clock::time_point now = engine_->stats().heartbeat;
    beats += now > last ? 1 : 0;
    last = now;
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(engine_->stats().steps, 0);
}

TEST_F(EngineTest, ComesRoundOnlyWhenItIsWoken) {
  // For the time: a few times a round. The engine outlives this function.
  const auto asked = std::make_shared<std::atomic<int>>(0);
  options_.now = [asked] {
    ++*asked;
    return Clock::now();
  };
  options_.heartbeat_interval = hours(1);
  Start();
  Submit(MakeRequest(Ids(3), 5))->WaitUntilDone();
  // Room for a loop that spins to show itself: this cannot fail by being slow.
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_LT(*asked, 200);
}

TEST_F(EngineTest, DrainingFinishesWhatItHasAndTakesNothingNew) {
  Start({.num_slots = 1});
  Sink running = SubmitEndless();
  Sink queued = Submit(MakeRequest(Ids(3), 2));
  engine_->Drain();
  EXPECT_TRUE(engine_->stats().draining);
  Sink late = Submit(MakeRequest(Ids(3), 2));
  EXPECT_EQ(status_.code(), StatusCode::kUnavailable);
  running->cancelled = true;
  engine_->Notify();
  engine_->Stop(Clock::now() + hours(1));
  EXPECT_EQ(running->status().code(), StatusCode::kCancelled);
  EXPECT_TRUE(queued->status().ok());
  EXPECT_FALSE(late->done());
}

TEST_F(EngineTest, StopsAtTheDeadlineWithUnavailable) {
  Start({.num_slots = 1});
  Sink running = SubmitEndless();
  Sink queued = Submit(MakeRequest(Ids(3), 2));
  engine_->Stop(Clock::now() + milliseconds(10));
  EXPECT_EQ(running->status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(queued->status().code(), StatusCode::kUnavailable);
  engine_->Stop(Clock::now());  // again: nothing happens
  EXPECT_TRUE(engine_->device_status().ok());
}

TEST_F(EngineTest, EndsItsRequestsWhenItIsDestroyed) {
  Start();
  Sink sink = SubmitEndless();
  engine_.reset();
  EXPECT_EQ(sink->status().code(), StatusCode::kUnavailable);
}

TEST_F(EngineTest, ReportsAFailedDevice) {
  std::atomic<bool> told{false};
  options_.on_device_failure = [&](const absl::Status& status) {
    EXPECT_THAT(std::string(status.message()), HasSubstr("lost the device"));
    told = true;
  };
  Start();
  model_->fail_at_step = 7;
  Sink sink = Submit(MakeRequest(Ids(3), 1000));
  sink->WaitUntilDone();
  EXPECT_EQ(sink->status().code(), StatusCode::kInternal);
  engine_->Stop(Clock::now() + hours(1));
  EXPECT_TRUE(told);
  EXPECT_FALSE(engine_->device_status().ok());
  Submit(MakeRequest(Ids(3), 1));
  EXPECT_EQ(status_.code(), StatusCode::kUnavailable);
}

TEST_F(EngineTest, KeepsItsPromisesWhileClientsComeAndGo) {
  options_.max_queued_requests = 8;
  Start();
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < 60; ++i) {
        auto sink = std::make_shared<RecordingSink>();
        auto request = std::make_unique<Request>(
            MakeRequest(Ids(1 + (i * t) % 20), 1 + i % 50));
        request->sink = sink;
        request->num_outputs = 1 + i % 3;
        if (!engine_->Submit(std::move(request)).ok()) continue;
        sink->full = i % 4 == 0;
        if (i % 3 == t) sink->cancelled = true;
        engine_->Notify();
        sink->full = false;
        engine_->Notify();
        sink->WaitUntilDone();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  engine_->Stop(Clock::now() + hours(1));
  EXPECT_EQ(engine_->stats().free_slots, 4);
  EXPECT_EQ(engine_->stats().running_requests, 0);
}

TEST_F(EngineTest, TakesSnapshotsWhileStreamsRun) {
  Start();
  auto sink = std::make_shared<RecordingSink>();
  auto begun = std::make_shared<std::atomic<bool>>(false);
  sink->on_token = [begun](size_t) { *begun = true; };
  Request request = MakeRequest(Ids(3), kEndless);
  request.id = "one";
  request.owner = "us";
  Submit(request, sink);
  while (!*begun) std::this_thread::yield();
  std::atomic<int> num_taken{0};
  for (int i = 0; i < 20; ++i) {
    engine_->TakeSnapshot("us", "one", 0, [&](const auto& snapshot) {
      EXPECT_TRUE(snapshot.ok()) << snapshot.status();
      EXPECT_GT((*snapshot)->num_tokens(), 3);
      ++num_taken;
    });
    engine_->TakeSnapshot("them", "one", 0, [&](const auto& snapshot) {
      EXPECT_TRUE(absl::IsNotFound(snapshot.status()));
      ++num_taken;
    });
  }
  while (num_taken < 40) std::this_thread::yield();
  sink->cancelled = true;
  engine_->Notify();
  sink->WaitUntilDone();
}

TEST_F(EngineTest, TakesNoSnapshotOnceItHasStopped) {
  Start();
  engine_->Stop(Clock::now());
  absl::Status status;
  engine_->TakeSnapshot(
      "", "one", 0, [&](const auto& snapshot) { status = snapshot.status(); });
  EXPECT_TRUE(absl::IsUnavailable(status));
}

}  // namespace
}  // namespace flash
