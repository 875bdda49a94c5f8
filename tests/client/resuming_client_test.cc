// Calls whose streams end too early, over real connections.

#include "client/resuming_client.h"

#include <thread>

#include "client/error_text.h"
#include "gmock/gmock.h"
#include "tests/client/scripted_server.h"

namespace flash {
namespace {

using grpc::StatusCode;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::UnorderedElementsAre;

const grpc::Status kGone(StatusCode::UNAVAILABLE, "gone");

// A call's events, and how it ended.
struct Answer {
  std::vector<v1::GenerateEvent> events;
  std::vector<Resumption> resumptions;
  grpc::Status status;

  std::string Text() const {
    std::string text;
    for (const auto& event : events) {
      text += event.token().text() + event.finished().text();
    }
    return text;
  }
};

class ResumingClientTest : public testing::Test {
 protected:
  ResumingClientTest() {
    request_.set_text("x");
    request_.mutable_stopping()->set_max_tokens(9);
    options_.first_pause = options_.longest_pause =
        std::chrono::milliseconds(5);
  }

  Answer Ask(const std::vector<std::string>& addresses) {
    CancellableCall call;
    return Ask(addresses, call);
  }
  Answer Ask(const std::vector<std::string>& addresses, CancellableCall& call) {
    Answer answer;
    ResumingClient client(addresses, options_);
    answer.status = client.Generate(
        request_, call,
        [&](v1::GenerateEvent& event) { answer.events.push_back(event); },
        [&](const Resumption& each) { answer.resumptions.push_back(each); });
    return answer;
  }
  Answer AskBoth() { return Ask({one_.address(), two_.address()}); }

  void ExpectWhole(const Answer& answer) {
    EXPECT_TRUE(answer.status.ok()) << ErrorText(answer.status);
    const auto right = RightAnswer(request_);
    ASSERT_THAT(answer.events, SizeIs(right.size()));
    for (size_t i = 0; i < right.size(); ++i) {
      EXPECT_EQ(answer.events[i].SerializeAsString(),
                right[i].SerializeAsString())
          << answer.events[i].ShortDebugString();
    }
  }

  ScriptedServer one_;
  ScriptedServer two_;
  v1::GenerateRequest request_;
  ResumeOptions options_;
};

TEST_F(ResumingClientTest, IsAsOneStreamWhereNothingHappens) {
  const Answer answer = AskBoth();
  ExpectWhole(answer);
  EXPECT_THAT(answer.resumptions, IsEmpty());
  EXPECT_THAT(two_.requests(), IsEmpty());
}

TEST_F(ResumingClientTest, GoesOnAtTheNextServerAfterAnyEvent) {
  for (int cut = 0; cut <= 11; ++cut) {
    SCOPED_TRACE(cut);
    one_.Play({{.cut_before = cut, .status = kGone}});
    two_.Play({{.num_repeated = 2, .num_repeated_bytes = 3}});
    const Answer answer = AskBoth();
    ExpectWhole(answer);
    // After the last event there is nothing left to ask for.
    EXPECT_EQ(two_.requests().size(),
              static_cast<size_t>(std::min(cut + 1, 11)));
    // What was never accepted begins; it does not go on.
    EXPECT_THAT(answer.resumptions, SizeIs(cut == 0 || cut == 11 ? 0 : 1));
  }
}

TEST_F(ResumingClientTest, TellsWhereItGoesOnAndWhy) {
  one_.Play({{.cut_before = 4, .status = kGone}});
  const Answer answer = AskBoth();
  ASSERT_THAT(answer.resumptions, SizeIs(1));
  EXPECT_EQ(answer.resumptions[0].address, two_.address());
  EXPECT_EQ(answer.resumptions[0].num_tokens, 3u);
  EXPECT_EQ(ErrorText(answer.resumptions[0].reason), "UNAVAILABLE: gone");
}

TEST_F(ResumingClientTest, GoesOnWhateverBrokeTheStream) {
  const std::vector<Script> breaks = {
      {.cut_before = 5, .drops = true},
      {.cut_before = 5},  // OK, but no `finished`
      {.cut_before = 5, .status = {StatusCode::INTERNAL, "RST_STREAM"}},
      {.cut_before = 5, .status = {StatusCode::UNKNOWN, "stream removed"}},
      {.cut_before = 5,
       .status = ServerError(StatusCode::UNAVAILABLE, "SHUTTING_DOWN")},
      {.cut_before = 5,
       .status = ServerError(StatusCode::UNAVAILABLE, "DEVICE_FAILED")},
      {.cut_before = 5,
       .status = ServerError(StatusCode::INTERNAL, "DEVICE_FAILED")}};
  for (const Script& each : breaks) {
    one_.Play({each});
    const Answer answer = AskBoth();
    ExpectWhole(answer);
    EXPECT_THAT(answer.resumptions, SizeIs(1));
  }
}

TEST_F(ResumingClientTest, GoesRoundUntilItIsThrough) {
  one_.Play({{.cut_before = 2, .status = kGone},
             {.cut_before = 0, .status = kGone},
             {.cut_before = 3, .drops = true}});
  two_.Play(
      {{.cut_before = 1, .status = kGone}, {.cut_before = 2, .status = kGone}});
  ExpectWhole(AskBoth());
  EXPECT_THAT(one_.requests(), SizeIs(3));
  EXPECT_THAT(two_.requests(), SizeIs(3));
}

TEST_F(ResumingClientTest, GoesOnAtTheSameServerIfThereIsNoOther) {
  one_.Play({{.cut_before = 4, .drops = true}, {.cut_before = 2}});
  ExpectWhole(Ask({one_.address()}));
  EXPECT_THAT(one_.requests(), SizeIs(3));
}

TEST_F(ResumingClientTest, GoesOnWhenAServerIsGone) {
  std::vector<std::string> addresses = {"127.0.0.1:1", two_.address()};
  ExpectWhole(Ask(addresses));
  two_.Play({{.cut_before = 4, .status = kGone}});
  ExpectWhole(Ask(addresses));
}

TEST_F(ResumingClientTest, AsksEachOnceWhereNobodyEverWas) {
  const Answer answer = Ask({"127.0.0.1:1", "127.0.0.1:2"});
  EXPECT_EQ(answer.status.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_THAT(answer.events, IsEmpty());
}

TEST_F(ResumingClientTest, EndsWithErrorsThatAreTheRequestsOwn) {
  const std::vector<grpc::Status> errors = {
      ServerError(StatusCode::INVALID_ARGUMENT, "INVALID_REQUEST"),
      ServerError(StatusCode::NOT_FOUND, "SESSION_NOT_FOUND"),
      ServerError(StatusCode::FAILED_PRECONDITION, "NO_TOKENIZER"),
      ServerError(StatusCode::DATA_LOSS, "SESSION_DAMAGED"),
      ServerError(StatusCode::DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED"),
      ServerError(StatusCode::CANCELLED, "CANCELLED"),
      ServerError(StatusCode::INTERNAL, "INTERNAL"),
      ServerError(StatusCode::ALREADY_EXISTS, "REQUEST_ID_IN_USE"),
      ServerError(StatusCode::ABORTED, "SESSION_IN_USE"),
      ServerError(StatusCode::RESOURCE_EXHAUSTED, "READER_TOO_SLOW"),
      ServerError(StatusCode::RESOURCE_EXHAUSTED, "SESSION_STORE_FULL"),
      {StatusCode::RESOURCE_EXHAUSTED, "larger than max"}};
  for (const grpc::Status& error : errors) {
    one_.Play({{.cut_before = 0, .status = error}});
    const Answer answer = AskBoth();
    EXPECT_EQ(ErrorText(answer.status), ErrorText(error));
  }
  EXPECT_THAT(two_.requests(), IsEmpty());
}

TEST_F(ResumingClientTest, ComesBackToAFullQueueWhenItIsToldTo) {
  const Script full = {
      .cut_before = 0,
      .status = ServerError(StatusCode::RESOURCE_EXHAUSTED, "QUEUE_FULL", 50)};
  one_.Play({full, full});
  const auto began = std::chrono::steady_clock::now();
  ExpectWhole(Ask({one_.address()}));
  EXPECT_GE(std::chrono::steady_clock::now() - began,
            std::chrono::milliseconds(100));
}

TEST_F(ResumingClientTest, WaitsUntilItsOldCallHasLeft) {
  const Script in_use = {
      .cut_before = 0,
      .status = ServerError(StatusCode::ALREADY_EXISTS, "REQUEST_ID_IN_USE")};
  const Script claimed = {
      .cut_before = 0,
      .status = ServerError(StatusCode::ABORTED, "SESSION_IN_USE")};
  one_.Play({{.cut_before = 4, .drops = true}, in_use, claimed, in_use});
  ExpectWhole(Ask({one_.address()}));
  EXPECT_THAT(one_.requests(), SizeIs(5));
}

TEST_F(ResumingClientTest, DoesNotTakeBackASessionThatAnotherTook) {
  one_.Play({{.cut_before = 4, .status = kGone}});
  two_.Play({{.cut_before = 4,
              .status = ServerError(StatusCode::ABORTED, "SESSION_IN_USE")}});
  EXPECT_EQ(AskBoth().status.error_code(), StatusCode::ABORTED);
}

TEST_F(ResumingClientTest, StopsWhereOtherBitsWouldCome) {
  one_.Play({{.cut_before = 4, .status = kGone}});
  two_.SetNumerics("other numbers");
  const Answer answer = AskBoth();
  EXPECT_EQ(answer.status.error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(answer.status.error_message(),
              HasSubstr("computes as \"other numbers\", and the one before as "
                        "\"numbers\""));
  EXPECT_THAT(two_.requests(), IsEmpty());
}

TEST_F(ResumingClientTest, BeginsAnywhereWhereNothingWasTold) {
  one_.Play({{.cut_before = 0, .status = kGone}});
  two_.SetNumerics("other numbers");
  ExpectWhole(AskBoth());
}

TEST_F(ResumingClientTest, StopsAtAnAnswerThatIsAnother) {
  one_.Play({{.cut_before = 4, .status = kGone}});
  two_.Play({{.num_repeated = 1, .seed_shift = 1}});
  const Answer answer = AskBoth();
  EXPECT_EQ(answer.status.error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(answer.status.error_message(), HasSubstr(two_.address()));
  EXPECT_THAT(answer.events, SizeIs(4));
}

TEST_F(ResumingClientTest, GivesUpWhenNothingNewHasComeForSoLong) {
  options_.patience = std::chrono::milliseconds(100);
  Script gone = {.cut_before = 0, .status = kGone};
  one_.Play(std::deque<Script>(10'000, gone));
  const Answer answer = Ask({one_.address()});
  EXPECT_EQ(ErrorText(answer.status), "UNAVAILABLE: gone");
}

TEST_F(ResumingClientTest, EndsAtOnceWhenItIsCancelledOrOutOfTime) {
  const Script gone = {.cut_before = 4, .status = kGone};
  const Script never = {
      .cut_before = 0,
      .status = ServerError(StatusCode::RESOURCE_EXHAUSTED, "QUEUE_FULL", 900)};
  one_.Play({gone, never, never});
  CancellableCall call;
  std::thread canceller([&] {
    while (one_.requests().size() < 2) std::this_thread::yield();
    call.Cancel();
  });
  EXPECT_EQ(Ask({one_.address()}, call).status.error_code(),
            StatusCode::CANCELLED);
  canceller.join();
  EXPECT_EQ(Ask({one_.address()}, call).status.error_code(),
            StatusCode::CANCELLED);

  one_.Play({gone, never, never});
  CancellableCall late(std::chrono::milliseconds(200));
  EXPECT_EQ(Ask({one_.address()}, late).status.error_code(),
            StatusCode::DEADLINE_EXCEEDED);
}

TEST_F(ResumingClientTest, IsOneStreamIfItIsToldTo) {
  options_.resume = false;
  one_.Play({{.cut_before = 4, .status = kGone}});
  const Answer answer = AskBoth();
  EXPECT_EQ(ErrorText(answer.status), "UNAVAILABLE: gone");
  EXPECT_THAT(answer.events, SizeIs(4));
}

TEST_F(ResumingClientTest, EndsEveryOutputOnceAndTellsTheUsageLast) {
  request_.mutable_sampling()->set_num_outputs(3);
  const int num_events = static_cast<int>(RightAnswer(request_).size());
  for (int cut = num_events - 6; cut <= num_events; ++cut) {
    SCOPED_TRACE(cut);
    one_.Play({{.cut_before = cut, .status = kGone}});
    const Answer answer = AskBoth();
    EXPECT_TRUE(answer.status.ok()) << ErrorText(answer.status);
    ASSERT_THAT(answer.events, SizeIs(num_events));
    std::vector<uint32_t> finished;
    for (const auto& event : answer.events) {
      if (event.has_finished()) {
        finished.push_back(event.finished().output_index());
      }
    }
    EXPECT_THAT(finished, UnorderedElementsAre(0, 1, 2));
    EXPECT_EQ(answer.events.back().usage().completion_tokens(), 9u + 8 + 7);
    EXPECT_EQ(answer.events.back().usage().prior_tokens(), 0u);
  }
}

}  // namespace
}  // namespace flash
