// Generate: order, cancellation, slow readers, over a real connection.

#include "server/service/token_stream.h"

#include <atomic>
#include <thread>

#include "gmock/gmock.h"
#include "tests/server/service/service_fixture.h"
#include "tests/server/service/wire_details.h"

namespace flash {
namespace {

using std::chrono::milliseconds;

class TokenStreamTest : public ServiceTest {
 protected:
  // Runs `body(i)` for i < n, each on a thread of its own.
  static void InParallel(int n, const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    for (int i = 0; i < n; ++i) threads.emplace_back(body, i);
    for (auto& thread : threads) thread.join();
  }
};

void ExpectOrdered(const StreamAnswer& answer, size_t num_tokens) {
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_EQ(answer.events.size(), num_tokens + 2);
  EXPECT_TRUE(answer.events.front().has_accepted());
  std::string text;
  for (size_t i = 0; i < num_tokens; ++i) {
    const auto& event = answer.events[i + 1];
    ASSERT_TRUE(event.has_token());
    EXPECT_EQ(event.token().token_index(), i);
    EXPECT_EQ(event.token().text_offset(), text.size());
    EXPECT_FALSE(event.has_usage());
    text += event.token().text();
  }
  const auto& last = answer.events.back();
  ASSERT_TRUE(last.has_finished());
  EXPECT_EQ(last.finished().reason(), v1::FINISH_REASON_MAX_TOKENS);
  EXPECT_EQ(last.finished().num_tokens(), num_tokens);
  EXPECT_EQ(last.finished().text_offset(), text.size());
  EXPECT_EQ(last.usage().completion_tokens(), num_tokens);
  EXPECT_TRUE(last.has_timing());
}

TEST_F(TokenStreamTest, GivesTwentyStreamsTheirTokensInOrder) {
  Start();
  InParallel(20, [this](int i) {
    auto request = TextRequest("stream " + std::to_string(i), 500);
    ExpectOrdered(Stream(request), 500);
  });
  // A client hears of its end before the engine counts it.
  EXPECT_TRUE(Eventually([](const EngineStats& stats) {
    return stats.finished_requests == 20 && stats.free_slots == 4;
  }));
}

TEST_F(TokenStreamTest, FreesTheSlotsOfTwentyStreamsThatAreCancelled) {
  setup_.before_step = [] { std::this_thread::sleep_for(milliseconds(1)); };
  Start();
  InParallel(20, [this](int i) {
    grpc::ClientContext context;
    auto reader =
        inference_->Generate(&context, TextRequest("cancelled", 100'000));
    v1::GenerateEvent event;
    // Some while they wait, some after a few tokens.
    for (int j = 0; i % 2 == 0 && j < i + 1; ++j) reader->Read(&event);
    context.TryCancel();
    while (reader->Read(&event)) {
    }
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  });
  EXPECT_TRUE(Eventually([](const EngineStats& stats) {
    return stats.free_slots == 4 && stats.queued_requests == 0;
  }));
}

TEST_F(TokenStreamTest, FreesTheSlotOfAClientThatIsGone) {
  setup_.before_step = [] { std::this_thread::sleep_for(milliseconds(1)); };
  Start();
  {
    auto stub = v1::Inference::NewStub(NewChannel());
    grpc::ClientContext context;
    auto reader = stub->Generate(&context, TextRequest("gone", 100'000));
    v1::GenerateEvent event;
    reader->Read(&event);
  }  // neither finished nor cancelled
  EXPECT_TRUE(Eventually(
      [](const EngineStats& stats) { return stats.free_slots == 4; }));
}

TEST_F(TokenStreamTest, EndsWithTheDeadline) {
  setup_.before_step = [] { std::this_thread::sleep_for(milliseconds(1)); };
  Start();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + milliseconds(100));
  const auto answer = Stream(TextRequest("late", 100'000), context);
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(Eventually(
      [](const EngineStats& stats) { return stats.free_slots == 4; }));
}

TEST_F(TokenStreamTest, PausesThenEndsAStreamThatNobodyReads) {
  setup_.server.outbox_events = 8;
  setup_.engine.slow_reader_timeout = milliseconds(300);
  Start();
  grpc::ClientContext context;
  auto request = TextRequest("slow", 100'000);
  request.mutable_response()->set_logprobs(20);
  auto reader = inference_->Generate(&context, request);
  // The connection's window and the outbox fill up, then generation pauses.
  EXPECT_TRUE(Eventually(
      [](const EngineStats& stats) { return stats.blocked_requests == 1; }));
  const int64_t generated = engine_->stats().generated_tokens;
  EXPECT_LT(generated, 5000);
  // Others go on meanwhile.
  EXPECT_TRUE(Stream(TextRequest("other", 10)).status.ok());

  EXPECT_TRUE(Eventually(
      [](const EngineStats& stats) { return stats.free_slots == 4; }));
  v1::GenerateEvent event;
  while (reader->Read(&event)) {
  }
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(DetailsOf(status).reason, "READER_TOO_SLOW");
}

TEST_F(TokenStreamTest, CancelsACallWhoseEndNobodyReads) {
  setup_.server.outbox_events = 8;
  setup_.server.linger = milliseconds(100);
  setup_.engine.slow_reader_timeout = milliseconds(100);
  Start();
  grpc::ClientContext context;
  auto request = TextRequest("never read", 100'000);
  request.mutable_response()->set_logprobs(20);
  auto reader = inference_->Generate(&context, request);
  EXPECT_TRUE(Eventually(
      [](const EngineStats& stats) { return stats.failed_requests == 1; }));
  // Returns when the call has ended, which without the client's help it does.
  const auto deadline = Clock::now() + kPatience;
  server_->Shutdown(deadline);
  EXPECT_LT(Clock::now(), deadline);
  v1::GenerateEvent event;
  while (reader->Read(&event)) {
  }
  // Not always CANCELLED: with its last call the connection closes too.
  EXPECT_FALSE(reader->Finish().ok());
}

TEST_F(TokenStreamTest, CancelsAFinishedCallThatNobodyReads) {
  setup_.server.linger = milliseconds(100);
  Start();
  grpc::ClientContext context;
  auto request = TextRequest(std::string(60'000, 'x'), 0);
  request.mutable_response()->set_echo(true);
  request.mutable_response()->set_prompt_logprobs(10);
  auto reader = inference_->Generate(&context, request);
  EXPECT_TRUE(Eventually(
      [](const EngineStats& stats) { return stats.finished_requests == 1; }));
  // Returns when the call has ended, which without the client's help it does.
  const auto deadline = Clock::now() + kPatience;
  server_->Shutdown(deadline);
  EXPECT_LT(Clock::now(), deadline);
  v1::GenerateEvent event;
  while (reader->Read(&event)) {
  }
  // Not always CANCELLED: with its last call the connection closes too.
  EXPECT_FALSE(reader->Finish().ok());
}

TEST_F(TokenStreamTest, GoesOnWhenASlowReaderReadsAgain) {
  setup_.server.outbox_events = 4;
  Start();
  grpc::ClientContext context;
  auto request = TextRequest("slow", 3000);
  request.mutable_response()->set_logprobs(20);
  auto reader = inference_->Generate(&context, request);
  EXPECT_TRUE(Eventually(
      [](const EngineStats& stats) { return stats.blocked_requests == 1; }));
  StreamAnswer answer;
  v1::GenerateEvent event;
  while (reader->Read(&event)) answer.events.push_back(event);
  answer.status = reader->Finish();
  ExpectOrdered(answer, 3000);
}

TEST_F(TokenStreamTest, SaysTheSameAsAUnaryCall) {
  Start();
  auto request = TextRequest("Grüße", 60);
  request.mutable_sampling()->set_num_outputs(3);
  request.mutable_response()->set_logprobs(2);
  request.mutable_response()->set_prompt_logprobs(1);
  request.mutable_response()->set_echo(true);
  request.mutable_stopping()->add_stop_strings("qu");
  const StreamAnswer stream = Stream(request);
  ASSERT_TRUE(stream.status.ok()) << stream.status.error_message();
  v1::GenerateResult unary;
  ASSERT_TRUE(Unary(request, &unary).ok());

  ASSERT_EQ(unary.outputs_size(), 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(unary.outputs(i).text(), stream.Text(i));
    std::vector<uint32_t> ids;
    for (const auto& token : unary.outputs(i).tokens()) {
      ids.push_back(token.id());
    }
    EXPECT_EQ(ids, stream.Ids(i));
  }
  const auto& last = stream.events.back();
  EXPECT_EQ(unary.usage().SerializeAsString(),
            last.usage().SerializeAsString());
  EXPECT_EQ(unary.prompt().SerializeAsString(),
            stream.events[1].prompt().SerializeAsString());
  EXPECT_EQ(unary.prompt().text(), "Grüße");
  EXPECT_EQ(unary.accepted().seed(), 17u);
}

TEST_F(TokenStreamTest, TellsTheSeedThatRepeatsTheAnswer) {
  Start();
  auto request = TextRequest("seed", 50);
  request.mutable_sampling()->clear_seed();
  const StreamAnswer first = Stream(request);
  ASSERT_TRUE(first.status.ok());
  request.mutable_sampling()->set_seed(first.events[0].accepted().seed());
  EXPECT_EQ(Stream(request).Ids(), first.Ids());
}

TEST_F(TokenStreamTest, ContinuesFromWhatWasGenerated) {
  Start();
  auto request = TextRequest("continue", 40);
  const StreamAnswer whole = Stream(request);
  ASSERT_TRUE(whole.status.ok());
  const auto ids = whole.Ids();
  auto* prior = request.add_prior_output_ids();
  for (int i = 0; i < 15; ++i) prior->add_ids(ids[i]);
  const StreamAnswer rest = Stream(request);
  ASSERT_TRUE(rest.status.ok()) << rest.status.error_message();
  EXPECT_EQ(rest.Ids(), std::vector<uint32_t>(ids.begin() + 15, ids.end()));
  EXPECT_EQ(rest.events[1].token().token_index(), 15u);
  EXPECT_EQ(rest.events[1].token().text_offset(), 15u);
  EXPECT_EQ(rest.events.back().usage().prior_tokens(), 15u);
  EXPECT_EQ(rest.events.back().usage().completion_tokens(), 40u);
}

TEST_F(TokenStreamTest, ReportsEachCallOnce) {
  Start();
  auto request = TextRequest("report", 5);
  request.set_request_id("my request");
  ASSERT_TRUE(Stream(request).status.ok());
  const auto told = reports();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].method, "Generate");
  EXPECT_EQ(told[0].request_id, "my request");
  EXPECT_TRUE(told[0].status.ok());
  EXPECT_EQ(told[0].usage.completion_tokens, 5);
  EXPECT_THAT(told[0].peer, testing::HasSubstr("127.0.0.1"));
}

}  // namespace
}  // namespace flash
