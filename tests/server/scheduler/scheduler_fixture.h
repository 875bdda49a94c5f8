// A scheduler over a FakeModel, on one thread, with a clock that a test turns.

#ifndef TESTS_SERVER_SCHEDULER_SCHEDULER_FIXTURE_H_
#define TESTS_SERVER_SCHEDULER_SCHEDULER_FIXTURE_H_

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/scheduler/scheduler.h"
#include "server/tokenizer/byte_tokenizer.h"
#include "tests/server/scheduler/fake_model.h"
#include "tests/server/scheduler/recording_sink.h"

namespace flash {

// `n` ids in [32, 96), different for each `salt`.
inline std::vector<int32_t> Ids(int n, int salt = 1) {
  std::vector<int32_t> ids(n);
  for (int i = 0; i < n; ++i) ids[i] = 32 + (i * 7 + salt * 13) % 64;
  return ids;
}

inline Request MakeRequest(std::vector<int32_t> prompt, int64_t max_tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.stopping.max_tokens = max_tokens;
  request.sampling.seed = 17;
  return request;
}

// Counts the pieces that are asked for: what is made of ids between steps.
// Thread safety: one thread at a time.
class CountingTokenizer final : public Tokenizer {
 public:
  bool has_text() const override { return bytes_.has_text(); }
  int num_pieces() const override { return bytes_.num_pieces(); }
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                              Place place) const override {
    return bytes_.Encode(text, place);
  }
  std::string Piece(int32_t id, Place place) const override {
    ++num_asked_;
    return bytes_.Piece(id, place);
  }

  int64_t num_asked() const { return num_asked_; }

 private:
  const ByteTokenizer bytes_;
  mutable int64_t num_asked_ = 0;
};

class SchedulerTest : public testing::Test {
 protected:
  using Sink = std::shared_ptr<RecordingSink>;

  SchedulerTest() { Start({}); }

  // A new scheduler, over a new model.
  void Start(const FakeModel::Sizes& sizes) {
    scheduler_.reset();
    options_.now = [this] { return now_; };
    model_ = std::make_unique<FakeModel>(sizes);
    queue_ = std::make_unique<RequestQueue>(1000, 4000000);
    scheduler_ = std::make_unique<Scheduler>(
        options_, model_.get(), &tokenizer_, parallel_for_, queue_.get());
  }

  Sink Submit(Request request, Sink sink = std::make_shared<RecordingSink>()) {
    request.sink = sink;
    auto owned = std::make_unique<Request>(std::move(request));
    EXPECT_TRUE(queue_->Push(owned, now_).ok());
    return sink;
  }

  void RunSteps(int n) {
    for (int i = 0; i < n; ++i) scheduler_->RunOnce();
  }
  // Until there is nothing to do.
  void Run() {
    int turns = 0;
    while (scheduler_->RunOnce()) ASSERT_LT(++turns, 100000);
  }
  // Runs one request, which nobody else is with.
  Sink RunAlone(Request request) {
    Sink sink = Submit(std::move(request));
    Run();
    EXPECT_TRUE(sink->done());
    return sink;
  }

  int free_slots() const { return scheduler_->stats().free_slots; }

  Clock::time_point now_{std::chrono::hours(1)};
  EngineOptions options_;
  ParallelFor parallel_for_;
  ByteTokenizer tokenizer_;
  std::unique_ptr<FakeModel> model_;
  std::unique_ptr<RequestQueue> queue_;
  std::unique_ptr<Scheduler> scheduler_;
};

}  // namespace flash

#endif  // TESTS_SERVER_SCHEDULER_SCHEDULER_FIXTURE_H_
