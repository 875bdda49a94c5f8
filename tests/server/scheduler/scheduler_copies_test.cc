// Copies of states hold up steps: only so many are made between two of them,
// and nobody is told anything else because of that.

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "server/scheduler/prefix_keys.h"
#include "tests/server/scheduler/fake_prefix_states.h"
#include "tests/server/scheduler/scheduler_fixture.h"

namespace flash {
namespace {

constexpr int kNumRequests = 12;

class SchedulerCopiesTest : public SchedulerTest {
 protected:
  void SetUp() override {
    options_.prefix_states = &states_;
    options_.eos_token_ids = {'e'};
    Start({.num_slots = kNumRequests, .max_rows = 200, .max_logits_rows = 24});
    model_->bias.assign(260, -20);
    for (int id : {'a', 'b', 'c'}) model_->bias[id] = 0;
  }

  // All come to their boundaries in the same steps, and most to their ends.
  static Request RequestOf(int n) {
    Request request = MakeRequest(Ids(12, n), 30);
    request.id = std::to_string(n);
    request.save = true;
    request.sampling.seed = n;
    request.stopping.stop_strings = {"abc", "cbab"};
    return request;
  }

  Sink Submit(Request request) {
    auto sink = std::make_shared<RecordingSink>();
    request.sink = sink;
    std::vector<PrefixKey> keys =
        PrefixKeysOf(states_, request, model_->chunk_size());
    auto owned = std::make_unique<Request>(std::move(request));
    EXPECT_TRUE(queue_->Push(owned, now_, std::move(keys)).ok());
    return sink;
  }

  // One turn; how many states it copied.
  int Copies() {
    const int before = model_->num_saves;
    scheduler_->RunOnce();
    return model_->num_saves - before;
  }

  FakePrefixStates states_;
};

TEST_F(SchedulerCopiesTest, MakesOnlySoManyBetweenTwoSteps) {
  std::vector<Sink> alone;
  for (int n = 0; n < kNumRequests; ++n) {
    alone.push_back(Submit(RequestOf(n)));
    Run();
  }
  const auto states = std::exchange(states_.states, {});
  std::vector<Sink> crowd;
  for (int n = 0; n < kNumRequests; ++n) crowd.push_back(Submit(RequestOf(n)));
  int num_full = 0;
  while (!scheduler_->idle()) {
    const int copies = Copies();
    ASSERT_LE(copies, Scheduler::kMaxStateCopies);
    if (copies == Scheduler::kMaxStateCopies) ++num_full;
  }
  EXPECT_GE(num_full, kNumRequests / Scheduler::kMaxStateCopies);

  EXPECT_EQ(states_.states.size(), states.size());
  for (int n = 0; n < kNumRequests; ++n) {
    SCOPED_TRACE(n);
    ASSERT_TRUE(crowd[n]->done() && crowd[n]->status().ok());
    const RecordingSink::Output& output = crowd[n]->outputs[0];
    EXPECT_EQ(output.lines, alone[n]->outputs[0].lines);
    const Snapshot& snapshot = *output.finished->snapshot;
    const Snapshot& other = *alone[n]->outputs[0].finished->snapshot;
    EXPECT_EQ(snapshot.position, other.position);
    EXPECT_EQ(*snapshot.state, *other.state);
    EXPECT_EQ(snapshot.pending, other.pending);
    EXPECT_EQ(snapshot.recent, other.recent);
  }
}

TEST_F(SchedulerCopiesTest, MakesNoneOfRequestsThatAreOver) {
  for (int turns = 1; turns < 30; ++turns) {
    states_.states.clear();
    std::vector<Sink> crowd;
    for (int n = 0; n < kNumRequests; ++n) {
      crowd.push_back(Submit(RequestOf(n)));
    }
    RunSteps(turns);
    for (const Sink& sink : crowd) sink->cancelled = true;
    EXPECT_EQ(Copies(), 0);
    EXPECT_TRUE(scheduler_->idle());
    EXPECT_EQ(free_slots(), kNumRequests);
  }
}

TEST_F(SchedulerCopiesTest, OneOutputsCopyHoldsTheOthersOfItsRequest) {
  Request request = RequestOf(3);
  request.num_outputs = 8;
  request.id = "several";
  const Sink alone = Submit(request);
  Run();
  states_.states.clear();
  const Sink first = Submit(RequestOf(1));
  const Sink sink = Submit(request);
  while (!scheduler_->idle()) {
    ASSERT_LE(Copies(), Scheduler::kMaxStateCopies);
  }
  for (int n = 0; n < 8; ++n) {
    EXPECT_EQ(sink->outputs[n].lines, alone->outputs[n].lines);
    const Snapshot& snapshot = *sink->outputs[n].finished->snapshot;
    const Snapshot& other = *alone->outputs[n].finished->snapshot;
    EXPECT_EQ(snapshot.position, other.position);
    EXPECT_EQ(*snapshot.state, *other.state);
  }
}

}  // namespace
}  // namespace flash
