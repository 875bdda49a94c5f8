// The calls of flash.v1.Inference beside Generate, and how calls fail.

#include "server/service/inference_service.h"

#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <future>
#include <thread>

#include "gmock/gmock.h"
#include "server/service/workers.h"
#include "tests/server/service/service_fixture.h"
#include "tests/server/service/wire_details.h"

namespace flash {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

class InferenceServiceTest : public ServiceTest {
 protected:
  ~InferenceServiceTest() override { Release(); }

  // Makes every step wait until Release().
  void HoldSteps() {
    setup_.before_step = [this] {
      in_step_.store(true);
      while (held_.load()) std::this_thread::sleep_for(milliseconds(1));
    };
  }
  void Release() { held_.store(false); }
  bool EventuallyInStep() {
    return Eventually([this](const EngineStats&) { return in_step_.load(); });
  }

  std::atomic<bool> held_{true};
  std::atomic<bool> in_step_{false};
};

TEST_F(InferenceServiceTest, ScoresEachTokenButTheFirst) {
  Start();
  v1::ScoreRequest request;
  request.mutable_token_ids()->mutable_ids()->Add('a');
  request.mutable_token_ids()->mutable_ids()->Add('b');
  request.mutable_token_ids()->mutable_ids()->Add('c');
  request.set_candidates(2);
  grpc::ClientContext context;
  v1::ScoreResult result;
  const grpc::Status status = inference_->Score(&context, request, &result);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(result.token_ids(), ElementsAre('a', 'b', 'c'));
  ASSERT_EQ(result.logprobs_size(), 2);
  EXPECT_LT(result.logprobs(0), 0);
  EXPECT_EQ(result.ranks_size(), 2);
  ASSERT_EQ(result.candidates_size(), 2);
  EXPECT_EQ(result.candidates(0).candidates_size(), 2);
  EXPECT_EQ(result.candidates(0).candidates(0).rank(), 1u);
  EXPECT_EQ(result.usage().prompt_tokens(), 3u);
  EXPECT_EQ(result.usage().completion_tokens(), 0u);
}

TEST_F(InferenceServiceTest, TokenizesAndBack) {
  Start();
  v1::TokenizeRequest request;
  request.set_text("hé");
  request.set_pieces(true);
  grpc::ClientContext context;
  v1::TokenizeResult ids;
  ASSERT_TRUE(inference_->Tokenize(&context, request, &ids).ok());
  EXPECT_THAT(ids.token_ids(), ElementsAre(kBos, 'h', 0xc3, 0xa9));
  EXPECT_THAT(ids.pieces(), ElementsAre("", "h", "\xc3", "\xa9"));

  v1::DetokenizeRequest back;
  back.mutable_token_ids()->Add(0xc3);
  back.mutable_token_ids()->Add(0xa9);
  back.mutable_token_ids()->Add(0xff);
  grpc::ClientContext second;
  v1::DetokenizeResult text;
  ASSERT_TRUE(inference_->Detokenize(&second, back, &text).ok());
  EXPECT_EQ(text.text(), "é\uFFFD");

  back.mutable_token_ids()->Add(256);
  grpc::ClientContext third;
  const grpc::Status status = inference_->Detokenize(&third, back, &text);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(DetailsOf(status).violations["token_ids[3]"],
              HasSubstr("is 256"));
}

TEST_F(InferenceServiceTest, TokenizesLongTextsOnAWorker) {
  Start();
  const std::string text(kLongTextBytes + 1, 'x');
  v1::TokenizeRequest request;
  request.set_text(text);
  request.set_add_bos(false);
  grpc::ClientContext context;
  v1::TokenizeResult ids;
  ASSERT_TRUE(inference_->Tokenize(&context, request, &ids).ok());
  EXPECT_EQ(ids.token_ids_size(), static_cast<int>(text.size()));

  const auto answer = Stream(TextRequest(text, 1));
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.events.back().usage().prompt_tokens(), text.size() + 1);
}

TEST_F(InferenceServiceTest, BoundsWhatTheTokenizerIsAskedFor) {
  setup_.server.limits.max_prompt_tokens = 3;
  Start();
  v1::TokenizeRequest request;
  request.set_text("abc");
  grpc::ClientContext contexts[2];
  v1::TokenizeResult ids;
  const grpc::Status many = inference_->Tokenize(&contexts[0], request, &ids);
  EXPECT_EQ(many.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(DetailsOf(many).violations["text"],
            "gives 4 tokens; the most is 3");
  v1::DetokenizeRequest back;
  for (int i = 0; i < 4; ++i) back.add_token_ids('a');
  v1::DetokenizeResult text;
  EXPECT_EQ(DetailsOf(inference_->Detokenize(&contexts[1], back, &text))
                .violations["token_ids"],
            "has 4 entries; the most is 3");
}

TEST_F(InferenceServiceTest, CancelsACallWhoseAnswerNobodyReads) {
  setup_.server.linger = milliseconds(100);
  Start();
  auto request = TextRequest("long", 40'000);
  request.mutable_response()->set_logprobs(20);
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  auto reader = inference_->AsyncGenerateUnary(&context, request, &queue);
  reader->ReadInitialMetadata(nullptr);  // asks, and reads no answer
  EXPECT_TRUE(Eventually(
      [](const EngineStats& stats) { return stats.finished_requests == 1; }));
  // Returns when the call has ended, which without the client's help it does.
  const auto deadline = Clock::now() + kPatience;
  server_->Shutdown(deadline);
  EXPECT_LT(Clock::now(), deadline);
  v1::GenerateResult result;
  grpc::Status status;
  reader->Finish(&result, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  ASSERT_TRUE(queue.Next(&tag, &ok));
  ASSERT_TRUE(queue.Next(&tag, &ok));
  EXPECT_FALSE(status.ok()) << status.error_code();
  queue.Shutdown();
  EXPECT_FALSE(queue.Next(&tag, &ok));
}

TEST_F(InferenceServiceTest, RefusesAnIdThatIsLiveAndTakesItAfterwards) {
  HoldSteps();
  Start();
  auto request = TextRequest("first", 3);
  request.set_request_id("once");
  grpc::ClientContext context;
  auto first = inference_->Generate(&context, request);
  ASSERT_TRUE(EventuallyInStep());
  v1::GenerateResult result;
  const grpc::Status status = Unary(request, &result);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(DetailsOf(status).reason, "REQUEST_ID_IN_USE");
  EXPECT_EQ(DetailsOf(status).resource, "request/once");
  Release();
  v1::GenerateEvent event;
  while (first->Read(&event)) {
  }
  EXPECT_TRUE(first->Finish().ok());
  EXPECT_TRUE(Unary(request, &result).ok());
}

TEST_F(InferenceServiceTest, SaysWhenToComeBackIfTheQueueIsFull) {
  HoldSteps();
  setup_.sizes.num_slots = 1;
  setup_.engine.max_queued_requests = 1;
  Start();
  // One that runs, one that waits.
  grpc::ClientContext contexts[2];
  const auto runs = inference_->Generate(&contexts[0], TextRequest("runs", 1));
  ASSERT_TRUE(EventuallyInStep());
  const auto waits =
      inference_->Generate(&contexts[1], TextRequest("waits", 1));
  ASSERT_TRUE(Eventually(
      [](const EngineStats& stats) { return stats.queued_requests == 1; }));
  grpc::ClientContext context;
  v1::GenerateResult result;
  const grpc::Status status =
      inference_->GenerateUnary(&context, TextRequest("x", 1), &result);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  const WireDetails details = DetailsOf(status);
  EXPECT_EQ(details.reason, "QUEUE_FULL");
  ASSERT_TRUE(details.retry_delay.has_value());
  EXPECT_GE(*details.retry_delay, milliseconds(500));
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto pushback = trailers.find("grpc-retry-pushback-ms");
  ASSERT_NE(pushback, trailers.end());
  EXPECT_EQ(std::string(pushback->second.data(), pushback->second.size()),
            std::to_string(details.retry_delay->count()));
  Release();
}

TEST_F(InferenceServiceTest, TellsAClientWhatIsWrongWithItsRequest) {
  Start();
  auto request = TextRequest("x", 1);
  request.mutable_sampling()->set_top_p(0);
  const grpc::Status status = Stream(request).status;
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const WireDetails details = DetailsOf(status);
  EXPECT_EQ(details.reason, "INVALID_REQUEST");
  EXPECT_THAT(details.violations.at("sampling.top_p"), HasSubstr("is 0"));
}

TEST_F(InferenceServiceTest, TellsWhatOnlyTheEngineKnows) {
  Start();
  auto request = TextRequest("x", 1);
  request.mutable_sampling()->set_num_outputs(5);  // of 4 slots
  const grpc::Status status = Stream(request).status;
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(DetailsOf(status).violations.size(), 1u);
}

// Sends bytes as they are, past what a client library would refuse.
grpc::Status SendBytes(const std::shared_ptr<grpc::Channel>& channel,
                       const std::string& method, const std::string& bytes) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  grpc::Slice slice(bytes);
  grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer response;
  std::promise<grpc::Status> done;
  stub.UnaryCall(&context, method, {}, &request, &response,
                 [&done](grpc::Status status) { done.set_value(status); });
  return done.get_future().get();
}

TEST_F(InferenceServiceTest, NamesAStringThatIsNotUtf8) {
  Start();
  const std::string method = "/flash.v1.Inference/GenerateUnary";
  v1::GenerateRequest request;
  request.mutable_stopping()->add_stop_strings("ab");
  request.set_text("cd");
  std::string bytes = request.SerializeAsString();
  for (const auto& [good, field] :
       {std::pair<std::string, std::string>{"ab", "stopping.stop_strings"},
        {"cd", "text"}}) {
    std::string bad = bytes;
    bad[bad.find(good)] = '\xff';
    const grpc::Status status = SendBytes(channel_, method, bad);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(DetailsOf(status).violations[field], HasSubstr("UTF-8"));
  }
  const grpc::Status status = SendBytes(channel_, method, "\x0f garbage");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("flash.v1.GenerateRequest"));
}

TEST_F(InferenceServiceTest, SendsALongPromptBackInParts) {
  Start();
  auto request = TextRequest(std::string(10'000, 'x'), 0);
  request.mutable_response()->set_echo(true);
  const auto answer = Stream(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  uint64_t next = 0;
  std::string text;
  for (const auto& event : answer.events) {
    if (!event.has_prompt()) continue;
    EXPECT_EQ(event.prompt().first_token_index(), next);
    next += event.prompt().tokens_size();
    text += event.prompt().text();
  }
  EXPECT_EQ(next, 10'001u);
  EXPECT_EQ(text, std::string(10'000, 'x'));
  EXPECT_TRUE(answer.events.back().has_finished());
}

}  // namespace
}  // namespace flash
