// A text that was saved is gone on with as if nothing had happened: what is
// told of it in parts is, to the bit, what is told of it in one go.

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "server/model/sampling.h"
#include "server/tokenizer/detokenizer.h"
#include "tests/server/scheduler/text_fixture.h"

namespace flash {
namespace {

using testing::HasSubstr;
using SnapshotPtr = std::shared_ptr<const Snapshot>;

// What an output says, wherever it was made.
struct Told {
  std::vector<std::string> tokens;
  std::string text;
  FinishReason reason = FinishReason::kEos;
  SnapshotPtr snapshot;

  void Append(const RecordingSink::Output& output) {
    tokens.insert(tokens.end(), output.tokens.begin(), output.tokens.end());
    text += output.text;
    reason = output.finished->reason;
    snapshot = output.finished->snapshot;
  }
};

class SchedulerSessionTest : public TextSchedulerTest {
 protected:
  static Request Everything(int64_t max_tokens, uint64_t seed) {
    Request request = TextSchedulerTest::Everything(max_tokens, seed);
    request.id = "everything";
    request.owner = "us";
    request.save = true;
    return request;
  }

  // `request`, going on from `start` without a prompt when `num_tokens` tokens
  // have come, up to `end` tokens.
  static Request Part(Request request, SnapshotPtr start, int64_t num_tokens,
                      int64_t end) {
    if (num_tokens > 0 || start != nullptr) {
      request.prompt.clear();
      request.start = std::move(start);
    }
    StoppingOptions& stopping = request.stopping;
    stopping.max_tokens = end - num_tokens;
    stopping.min_tokens =
        std::max<int64_t>(0, stopping.min_tokens - num_tokens);
    return request;
  }

  Told InParts(const Request& request, std::vector<int64_t> cuts) {
    Told told;
    cuts.push_back(request.stopping.max_tokens);
    SnapshotPtr snapshot;
    for (const int64_t cut : cuts) {
      Sink sink = RunAlone(Part(request, std::move(snapshot),
                                static_cast<int64_t>(told.tokens.size()), cut));
      EXPECT_TRUE(sink->status().ok()) << sink->status();
      if (!sink->status().ok()) return told;
      told.Append(sink->outputs[0]);
      snapshot = told.snapshot;
      if (told.reason != FinishReason::kMaxTokens) break;
    }
    return told;
  }

  static void ExpectSame(const Told& parts, const Told& whole) {
    EXPECT_EQ(parts.tokens, whole.tokens);
    EXPECT_EQ(parts.text, whole.text);
    EXPECT_EQ(parts.reason, whole.reason);
    EXPECT_EQ(parts.snapshot->num_tokens(), whole.snapshot->num_tokens());
    EXPECT_EQ(parts.snapshot->recent, whole.snapshot->recent);
    EXPECT_EQ(parts.snapshot->held, whole.snapshot->held);
    EXPECT_EQ(parts.snapshot->incomplete, whole.snapshot->incomplete);
    EXPECT_EQ(parts.snapshot->place, whole.snapshot->place);
  }

  // Whole, and in two parts, for every place where it may be cut.
  void ExpectTheSameInParts(const Request& request) {
    const Told whole = InParts(request, {});
    for (int64_t cut = 0; cut < request.stopping.max_tokens; ++cut) {
      SCOPED_TRACE(cut);
      ExpectSame(InParts(request, {cut}), whole);
    }
  }
};

TEST_F(SchedulerSessionTest, GoesOnFromEveryTokenAsIfNothingHadHappened) {
  for (uint64_t seed = 0; seed < 25; ++seed) {
    SCOPED_TRACE(seed);
    ExpectTheSameInParts(Everything(30, seed));
  }
}

TEST_F(SchedulerSessionTest, GoesOnAtTheEdgesOfChunks) {
  for (int length : {1, 7, 8, 9, 16, 17}) {
    Request request = Everything(20, 5);
    request.prompt = Ids(length);
    ExpectTheSameInParts(request);
  }
}

TEST_F(SchedulerSessionTest, GoesOnWithTheStopsTextKept) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    Request request = Everything(25, seed);
    request.stopping.include_stop = true;
    request.stopping.stop_token_ids = {'a'};
    ExpectTheSameInParts(request);
  }
}

TEST_F(SchedulerSessionTest, GoesOnFromPartsOfASingleToken) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const Request request = Everything(25, seed);
    std::vector<int64_t> cuts;
    for (int64_t cut = 0; cut < 25; ++cut) cuts.push_back(cut);
    ExpectSame(InParts(request, cuts), InParts(request, {}));
  }
}

TEST_F(SchedulerSessionTest, GoesOnWithDrafts) {
  options_.max_drafted_tokens = 4;
  Begin({});
  model_->context = 2;  // so that it repeats itself
  for (uint64_t seed = 0; seed < 10; ++seed) {
    Request request = Everything(40, seed);
    request.sampling = SamplingOptions();
    request.sampling.temperature = 0.2f;
    request.sampling.seed = seed;
    request.stopping.ignore_eos = seed % 2 == 0;
    ExpectTheSameInParts(request);
  }
  EXPECT_GT(scheduler_->stats().accepted_tokens, 100);
}

TEST_F(SchedulerSessionTest, GoesOnFromPriorIdsAsFromItsOwn) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const Request request = Everything(30, seed);
    Sink whole = RunAlone(request);
    const std::vector<int32_t>& ids = whole->outputs[0].ids;
    for (size_t num_prior = 0; num_prior <= ids.size(); ++num_prior) {
      Request again = request;
      again.prior_output_ids = {{ids.begin(), ids.begin() + num_prior}};
      const Finished finished = *RunAlone(again)->outputs[0].finished;
      const Snapshot& expected = *whole->outputs[0].finished->snapshot;
      EXPECT_EQ(finished.snapshot->recent, expected.recent);
      EXPECT_EQ(finished.snapshot->num_tokens(), expected.num_tokens());
      EXPECT_EQ(finished.snapshot->held, expected.held);
      EXPECT_EQ(finished.snapshot->ended, expected.ended);
    }
  }
}

std::vector<int32_t> IdsOf(const Snapshot& snapshot) {
  std::vector<int32_t> ids;
  for (const RecentToken& token : snapshot.recent) ids.push_back(token.id);
  return ids;
}

TEST_F(SchedulerSessionTest, SavesTheTextThatWasToldAndNothingElse) {
  std::map<FinishReason, int> reasons;
  int num_rewound = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const Request request = Everything(30, seed);
    Sink sink = RunAlone(request);
    const RecordingSink::Output& output = sink->outputs[0];
    const Finished& finished = *output.finished;
    const Snapshot& saved = *finished.snapshot;
    ++reasons[finished.reason];
    const std::vector<int32_t> ids = IdsOf(saved);
    ASSERT_EQ(static_cast<int64_t>(ids.size()), saved.num_tokens());
    const bool goes_on = finished.reason == FinishReason::kMaxTokens;
    EXPECT_EQ(saved.ended, !goes_on);
    std::string bytes;
    for (size_t i = request.prompt.size(); i < ids.size(); ++i) {
      bytes += tokenizer_.Piece(ids[i], Tokenizer::Place::kLater);
    }
    std::string text;
    Utf8Assembler assembler;
    assembler.Push(bytes, text);
    if (!goes_on) assembler.Flush(text);
    EXPECT_EQ(text, output.text + saved.held);
    if (finished.reason == FinishReason::kEos) {
      EXPECT_TRUE(saved.pending.empty() || saved.position % 8 == 0);
      EXPECT_EQ(ids.size(), request.prompt.size() + output.ids.size() - 1);
    }
    if (saved.pending.size() > 1) ++num_rewound;

    // More text is appended, by the session and by hand.
    Request more = MakeRequest(Ids(5, 3), 12);
    more.stopping.ignore_eos = true;
    Request whole = more;
    whole.prompt = ids;
    whole.prompt.insert(whole.prompt.end(), more.prompt.begin(),
                        more.prompt.end());
    more.start = finished.snapshot;
    EXPECT_EQ(RunAlone(more)->outputs[0].tokens,
              RunAlone(whole)->outputs[0].tokens);
  }
  EXPECT_GT(reasons[FinishReason::kEos], 0);
  EXPECT_GT(reasons[FinishReason::kStopString], 0);
  EXPECT_GT(reasons[FinishReason::kMaxTokens], 0);
  EXPECT_GT(num_rewound, 0);
}

TEST_F(SchedulerSessionTest, CountsWhatWasGeneratedBeforeAsOutput) {
  Request first = Everything(15, 2);
  first.stopping.stop_strings.clear();
  first.stopping.ignore_eos = true;
  Sink sink = RunAlone(first);
  Request more = Everything(10, 9);
  more.stopping = first.stopping;
  more.stopping.max_tokens = 10;
  more.stopping.min_tokens = 0;
  more.sampling.penalty_window = 100;
  more.prompt = Ids(4, 7);
  more.start = sink->outputs[0].finished->snapshot;
  // By definition: the penalties see each token as what it was.
  TokenHistory history(100);
  std::vector<int32_t> all = first.prompt;
  history.AppendPrompt(first.prompt);
  for (const int32_t id : sink->outputs[0].ids) {
    all.push_back(id);
    history.AppendOutput(id);
  }
  all.insert(all.end(), more.prompt.begin(), more.prompt.end());
  history.AppendPrompt(more.prompt);
  std::vector<int32_t> expected;
  SamplingScratch scratch(model_->vocab_size());
  for (int i = 0; i < 10; ++i) {
    const std::vector<float> logits = model_->LogitsAfter(all);
    expected.push_back(*SampleToken(
        {.logits = logits,
         .options = more.sampling,
         .history = history,
         .forbidden = {},
         .num_pieces = tokenizer_.num_pieces(),
         .draw = {.seed = 9, .output_index = 0, .position = all.size()}},
        scratch));
    all.push_back(expected.back());
    history.AppendOutput(expected.back());
  }
  EXPECT_EQ(RunAlone(more)->outputs[0].ids, expected);
}

TEST_F(SchedulerSessionTest,
       LeavesThePromptsLastIdPendingIfNothingIsGenerated) {
  for (int length : {1, 2, 8, 9}) {
    Request request = Everything(0, 3);
    request.prompt = Ids(length);
    Sink sink = RunAlone(request);
    const Snapshot& saved = *sink->outputs[0].finished->snapshot;
    EXPECT_EQ(saved.position, length - 1);
    EXPECT_THAT(saved.pending, testing::ElementsAre(request.prompt.back()));
    EXPECT_FALSE(saved.ended);
    EXPECT_EQ(scheduler_->stats().free_slots, 4);
  }
}

TEST_F(SchedulerSessionTest, GoesOnWithSeveralOutputsFromOneText) {
  Request request = Everything(20, 4);
  request.num_outputs = 3;
  Sink whole = RunAlone(request);
  Request nothing = Everything(0, 4);
  nothing.num_outputs = 2;
  Sink read = RunAlone(nothing);
  Request rest = request;
  rest.prompt.clear();
  rest.start = read->outputs[1].finished->snapshot;
  EXPECT_EQ(rest.start->output_index, 1u);
  rest.num_outputs = 2;
  Sink parts = RunAlone(rest);
  for (int index : {0, 1}) {
    EXPECT_EQ(parts->outputs[index].tokens, whole->outputs[index + 1].tokens);
    EXPECT_EQ(parts->outputs[index].text, whole->outputs[index + 1].text);
  }
  // And each of several outputs has a text of its own.
  Request begun = Part(request, nullptr, 0, 6);
  Sink first = RunAlone(begun);
  for (int index : {0, 1, 2}) {
    if (first->outputs[index].finished->reason != FinishReason::kMaxTokens) {
      continue;
    }
    Request one =
        Part(request, first->outputs[index].finished->snapshot, 6, 20);
    one.num_outputs = 1;
    EXPECT_EQ(first->outputs[index].text + RunAlone(one)->outputs[0].text,
              whole->outputs[index].text);
  }
}

TEST_F(SchedulerSessionTest, TakesTheTextOfARunningOutputAndDisturbsNothing) {
  Request request = Everything(25, 5);
  request.stopping.stop_strings.clear();
  request.stopping.ignore_eos = true;
  request.save = false;
  Sink alone = RunAlone(request);
  Sink sink = Submit(request);
  std::vector<std::pair<size_t, SnapshotPtr>> taken;
  while (!sink->done()) {
    RunSteps(1);
    const auto snapshot = scheduler_->TakeSnapshot("us", "everything", 0);
    const size_t num_tokens = sink->outputs[0].ids.size();
    if (num_tokens == 0) {
      EXPECT_TRUE(absl::IsFailedPrecondition(snapshot.status()));
      continue;
    }
    ASSERT_TRUE(snapshot.ok()) << snapshot.status();
    taken.push_back({num_tokens, *snapshot});
  }
  EXPECT_EQ(sink->outputs[0].lines, alone->outputs[0].lines);
  ASSERT_GT(taken.size(), 20u);
  for (const auto& [num_tokens, snapshot] : taken) {
    if (num_tokens == 25) continue;
    Sink rest =
        RunAlone(Part(request, snapshot, static_cast<int64_t>(num_tokens), 25));
    const std::vector<std::string>& tokens = alone->outputs[0].tokens;
    EXPECT_EQ(
        rest->outputs[0].tokens,
        std::vector<std::string>(tokens.begin() + num_tokens, tokens.end()));
  }
}

TEST_F(SchedulerSessionTest, TakesTheTextOfAFinishedOutputUntilItsSlotIsTaken) {
  Request request = Everything(6, 5);
  request.stopping.stop_strings.clear();
  request.stopping.ignore_eos = true;
  request.save = false;
  Sink sink = RunAlone(request);
  for (int others = 0; others < 4; ++others) {
    const auto snapshot = scheduler_->TakeSnapshot("us", "everything", 0);
    ASSERT_TRUE(snapshot.ok()) << snapshot.status();
    EXPECT_EQ((*snapshot)->num_tokens(), 11 + 6);
    EXPECT_EQ((*snapshot)->pending.size(), 1u);
    EXPECT_EQ(IdsOf(**snapshot).back(), sink->outputs[0].ids.back());
    RunAlone(MakeRequest(Ids(3), 2));  // takes the slot that was free longest
  }
  EXPECT_TRUE(absl::IsNotFound(
      scheduler_->TakeSnapshot("us", "everything", 0).status()));
}

TEST_F(SchedulerSessionTest, TellsNobodyOfTheTextsOfOthers) {
  Request request = Everything(6, 5);
  RunAlone(request);
  Submit(request);
  RunSteps(3);
  for (const char* owner : {"", "them"}) {
    const auto snapshot = scheduler_->TakeSnapshot(owner, "everything", 0);
    EXPECT_TRUE(absl::IsNotFound(snapshot.status()));
    EXPECT_EQ(
        snapshot.status().message(),
        scheduler_->TakeSnapshot(owner, "everything", 0).status().message());
  }
  EXPECT_TRUE(
      absl::IsNotFound(scheduler_->TakeSnapshot("us", "another", 0).status()));
  EXPECT_TRUE(absl::IsNotFound(
      scheduler_->TakeSnapshot("us", "everything", 1).status()));
  EXPECT_TRUE(scheduler_->TakeSnapshot("us", "everything", 0).ok());
}

TEST_F(SchedulerSessionTest, DoesNotSaveHiddenStopTextThatItCannotCutOff) {
  for (uint64_t seed = 0;; ++seed) {
    Request request = Everything(30, seed);
    request.save = false;
    Sink sink = RunAlone(request);
    if (sink->outputs[0].finished->reason != FinishReason::kStopString) {
      continue;
    }
    const auto snapshot = scheduler_->TakeSnapshot("us", "everything", 0);
    EXPECT_TRUE(absl::IsFailedPrecondition(snapshot.status()));
    EXPECT_THAT(std::string(snapshot.status().message()), HasSubstr("hidden"));
    request.save = true;
    sink = RunAlone(request);
    const auto saved = scheduler_->TakeSnapshot("us", "everything", 0);
    ASSERT_TRUE(saved.ok());
    EXPECT_EQ((*saved)->recent, sink->outputs[0].finished->snapshot->recent);
    break;
  }
}

TEST_F(SchedulerSessionTest, FailsOnlyTheRequestWhoseStateIsDamaged) {
  Sink sink = RunAlone(Everything(6, 5));
  Snapshot damaged = *sink->outputs[0].finished->snapshot;
  damaged.state = std::make_shared<std::string>("x");
  Snapshot short_one = *sink->outputs[0].finished->snapshot;
  short_one.state = std::make_shared<std::string>("1234");
  std::vector<Sink> bad;
  Sink good = Submit(Everything(6, 5));
  for (const Snapshot& each : {damaged, short_one}) {
    Request request = Everything(6, 5);
    request.start = std::make_shared<const Snapshot>(each);
    bad.push_back(Submit(request));
  }
  Run();
  for (const Sink& each : bad) {
    EXPECT_TRUE(absl::IsDataLoss(each->status()));
  }
  EXPECT_THAT(std::string(bad[0]->status().message()),
              HasSubstr("not a state of the fake model"));
  EXPECT_EQ(good->outputs[0].lines, sink->outputs[0].lines);
  EXPECT_EQ(free_slots(), 4);
}

TEST_F(SchedulerSessionTest, FailsRatherThanSaveWhatAFailedDeviceCopied) {
  model_->fail_copies = true;
  Sink saved = Submit(Everything(6, 5));
  Request other = Everything(60, 6);
  other.id = "other";
  Sink running = Submit(other);
  Run();
  for (const Sink& each : {saved, running}) {
    EXPECT_TRUE(absl::IsInternal(each->status()));
    EXPECT_THAT(std::string(each->status().message()),
                HasSubstr("the device has failed: lost the device"));
    EXPECT_FALSE(each->outputs[0].finished.has_value());
  }
  EXPECT_FALSE(scheduler_->device_status().ok());
}

TEST_F(SchedulerSessionTest, NoticesAFailedDeviceWhenARunningTextIsAskedFor) {
  Request request = Everything(60, 5);
  request.save = false;
  Sink sink = Submit(request);
  RunSteps(5);
  model_->fail_copies = true;
  EXPECT_TRUE(absl::IsInternal(
      scheduler_->TakeSnapshot("us", "everything", 0).status()));
  EXPECT_FALSE(scheduler_->RunOnce());
  EXPECT_TRUE(absl::IsInternal(sink->status()));
}

TEST_F(SchedulerSessionTest, BlamesTheDeviceAndNotTheSavedStateThatItLost) {
  Request request = Everything(6, 5);
  request.start = RunAlone(request)->outputs[0].finished->snapshot;
  request.prompt.clear();
  model_->fail_copies = true;
  Sink sink = RunAlone(request);
  EXPECT_TRUE(absl::IsInternal(sink->status()));
  EXPECT_FALSE(scheduler_->device_status().ok());
}

TEST_F(SchedulerSessionTest, SavesWhatThereIsWhenItsTimeIsUp) {
  Start({.max_rows = 3});
  Request request = Everything(10, 5);
  request.prompt = Ids(20);
  request.num_outputs = 2;
  request.stopping.time_limit = std::chrono::seconds(1);
  Request again = request;
  again.stopping.time_limit.reset();
  again.num_outputs = 1;
  const std::vector<std::string> expected = RunAlone(again)->outputs[0].tokens;
  for (int num_steps : {0, 1, 3}) {
    Sink sink = Submit(request);
    RunSteps(num_steps);
    now_ += std::chrono::seconds(2);
    Run();
    for (int index : {0, 1}) {
      const Finished& finished = *sink->outputs[index].finished;
      EXPECT_EQ(finished.reason, FinishReason::kTimeLimit);
      EXPECT_EQ(finished.snapshot->num_tokens(), 20);
      EXPECT_EQ(finished.snapshot->position, std::min(3 * num_steps, 8));
    }
    Request rest = again;
    rest.prompt.clear();
    rest.start = sink->outputs[0].finished->snapshot;
    EXPECT_EQ(RunAlone(rest)->outputs[0].tokens, expected);
  }
  EXPECT_EQ(free_slots(), 4);
}

TEST_F(SchedulerSessionTest, GivesTheSlotsOfCancelledRequestsBack) {
  Sink first = RunAlone(Everything(6, 5));
  Request request = Everything(6, 5);
  request.prompt.clear();
  request.start = first->outputs[0].finished->snapshot;
  request.num_outputs = 3;
  for (int num_steps : {0, 1, 2, 3}) {
    Sink sink = Submit(request);
    RunSteps(num_steps);
    sink->cancelled = true;
    Run();
    EXPECT_TRUE(absl::IsCancelled(sink->status()));
    EXPECT_EQ(free_slots(), 4);
  }
}

}  // namespace
}  // namespace flash
