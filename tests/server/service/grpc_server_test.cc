// The standard services, the model's and the server's facts, and the end.

#include "server/service/grpc_server.h"

#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <future>
#include <thread>

#include "gmock/gmock.h"
#include "tests/server/service/service_fixture.h"
#include "tests/server/service/wire_details.h"

namespace flash {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

class GrpcServerTest : public ServiceTest {
 protected:
  // The answer's bytes, as a text in which names can be found.
  std::string Call(const std::string& method, const std::string& bytes,
                   grpc::Status* status = nullptr) {
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    grpc::Slice slice(bytes);
    grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer response;
    std::promise<grpc::Status> done;
    stub.UnaryCall(&context, method, {}, &request, &response,
                   [&done](grpc::Status s) { done.set_value(s); });
    const grpc::Status result = done.get_future().get();
    if (status != nullptr) *status = result;
    std::vector<grpc::Slice> slices;
    std::string text;
    if (!result.ok() || !response.Dump(&slices).ok()) return text;
    for (const auto& part : slices) {
      text.append(reinterpret_cast<const char*>(part.begin()), part.size());
    }
    return text;
  }

  // HealthCheckResponse.status: 1 SERVING, 2 NOT_SERVING.
  int Health(const std::string& service) {
    std::string request;
    if (!service.empty()) {
      request =
          "\x0a" + std::string(1, static_cast<char>(service.size())) + service;
    }
    grpc::Status status;
    const std::string answer =
        Call("/grpc.health.v1.Health/Check", request, &status);
    return status.ok() && answer.size() == 2 ? answer[1] : -1;
  }

  bool EventuallyHealth(int wanted) {
    return Eventually([this, wanted](const EngineStats&) {
      return Health("flash.v1.Inference") == wanted;
    });
  }
};

TEST_F(GrpcServerTest, IsServingUntilItDrains) {
  Start();
  EXPECT_EQ(Health(""), 1);
  EXPECT_TRUE(EventuallyHealth(1));
  engine_->Drain();
  EXPECT_TRUE(EventuallyHealth(2));
  EXPECT_EQ(Health(""), 1);  // alive all the same
}

TEST_F(GrpcServerTest, IsNotServingWhileTheLastHeartbeatIsOld) {
  std::atomic<bool> late{false};
  setup_.server.stale_after = std::chrono::minutes(10);
  setup_.engine.heartbeat_interval = milliseconds(10);
  setup_.engine.now = [&late] {
    return Clock::now() - std::chrono::hours(late.load() ? 1 : 0);
  };
  Start();
  EXPECT_TRUE(EventuallyHealth(1));
  late.store(true);
  EXPECT_TRUE(EventuallyHealth(2));
  late.store(false);
  EXPECT_TRUE(EventuallyHealth(1));
  Stop();  // asks `late`
}

TEST_F(GrpcServerTest, IsNotServingAfterTheDeviceFailed) {
  Start();
  model_->fail_at_step = 0;
  const grpc::Status status = Stream(TextRequest("x", 5)).status;
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(DetailsOf(status).reason, "DEVICE_FAILED");
  EXPECT_TRUE(EventuallyHealth(2));
  const grpc::Status later = Stream(TextRequest("x", 5)).status;
  EXPECT_EQ(later.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(DetailsOf(later).reason, "DEVICE_FAILED");
}

TEST_F(GrpcServerTest, EndsWhatRunsAndRefusesWhatComesWhileItDrains) {
  setup_.before_step = [] { std::this_thread::sleep_for(milliseconds(1)); };
  Start();
  grpc::ClientContext context;
  auto reader = inference_->Generate(&context, TextRequest("runs", 200));
  v1::GenerateEvent event;
  ASSERT_TRUE(reader->Read(&event));
  server_->LeaveService();
  engine_->Drain();
  const grpc::Status refused = Stream(TextRequest("comes", 1)).status;
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(DetailsOf(refused).reason, "SHUTTING_DOWN");
  int num_tokens = 0;
  while (reader->Read(&event)) num_tokens += event.has_token();
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(num_tokens, 200);
  const auto deadline = Clock::now() + std::chrono::seconds(5);
  engine_->Stop(deadline);
  server_->Shutdown(deadline);
  EXPECT_LT(Clock::now(), deadline);
}

TEST_F(GrpcServerTest, TellsWhatIsServed) {
  setup_.server.server.version = "1.2.3";
  setup_.server.server.device = "cpu";
  setup_.server.server.num_slots = 4;
  Start();
  grpc::ClientContext context;
  v1::ServerInfo server;
  ASSERT_TRUE(control_->GetServerInfo(&context, {}, &server).ok());
  EXPECT_EQ(server.version(), "1.2.3");
  EXPECT_GE(server.api_revision(), 1u);
  EXPECT_EQ(server.device(), "cpu");
  EXPECT_EQ(server.num_slots(), 4u);
  EXPECT_EQ(server.load().slots_free(), 4u);
  EXPECT_EQ(server.limits().max_logprobs(), 20u);
  EXPECT_FALSE(server.shutting_down());

  grpc::ClientContext second;
  v1::ModelInfo model;
  ASSERT_TRUE(control_->GetModelInfo(&second, {}, &model).ok());
  EXPECT_EQ(model.name(), "bytes");
  EXPECT_EQ(model.vocab_size(), 260u);
  EXPECT_EQ(model.num_pieces(), 256u);
  EXPECT_EQ(model.bos_token_id(), static_cast<uint32_t>(kBos));
  EXPECT_FALSE(model.has_max_length());

  grpc::ClientContext third;
  v1::GetModelInfoRequest other;
  other.set_model("other");
  EXPECT_EQ(control_->GetModelInfo(&third, other, &model).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(GrpcServerTest, ListsItsServicesByReflection) {
  Start();
  // ServerReflectionRequest{list_services: "*"}
  const std::string answer =
      Call("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
           "\x3a\x01*");
  EXPECT_THAT(answer, HasSubstr("flash.v1.Inference"));
  EXPECT_THAT(answer, HasSubstr("flash.v1.Control"));
  EXPECT_THAT(answer, HasSubstr("grpc.health.v1.Health"));
  EXPECT_THAT(answer, HasSubstr("grpc.channelz.v1.Channelz"));
}

TEST_F(GrpcServerTest, RefusesMessagesThatAreTooLarge) {
  setup_.server.limits.max_message_bytes = 10'000;
  Start();
  EXPECT_TRUE(Stream(TextRequest(std::string(9'000, 'x'), 1)).status.ok());
  EXPECT_EQ(
      Stream(TextRequest(std::string(11'000, 'x'), 1)).status.error_code(),
      grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(GrpcServerTest, SaysThatAnAddressIsTaken) {
  Start();
  GrpcServerOptions options = setup_.server;
  options.listen = address();
  const auto second = GrpcServer::Start(options, engine_.get(), &tokenizer_);
  EXPECT_TRUE(absl::IsUnavailable(second.status()));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(address()));
}

}  // namespace
}  // namespace flash
