#include "client/flash_client.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <thread>

namespace flash {
namespace {

constexpr auto kInfoTimeout = std::chrono::seconds(10);
constexpr auto kProbeTimeout = std::chrono::seconds(1);
constexpr auto kProbePause = std::chrono::milliseconds(50);

std::shared_ptr<grpc::Channel> Connect(const std::string& address) {
  grpc::ChannelArguments arguments;
  // An answer may be as long as the client asked for.
  arguments.SetMaxReceiveMessageSize(-1);
  // The server takes a ping every 10 seconds; with these a client notices
  // within half a minute that its server is gone.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Each FlashClient has a connection of its own.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // While a server starts, look for it again soon.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2'000);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                   arguments);
}

}  // namespace

FlashClient::FlashClient(const std::string& address)
    : channel_(Connect(address)),
      inference_(v1::Inference::NewStub(channel_)),
      control_(v1::Control::NewStub(channel_)),
      health_(grpc::health::v1::Health::NewStub(channel_)) {}

grpc::Status FlashClient::Generate(
    const v1::GenerateRequest& request, CancellableCall& call,
    const std::function<void(const v1::GenerateEvent&)>& on_event) {
  const auto reader = inference_->Generate(&call.context_, request);
  v1::GenerateEvent event;
  while (reader->Read(&event)) on_event(event);
  return reader->Finish();
}

grpc::Status FlashClient::GenerateUnary(const v1::GenerateRequest& request,
                                        CancellableCall& call,
                                        v1::GenerateResult& result) {
  return inference_->GenerateUnary(&call.context_, request, &result);
}

grpc::Status FlashClient::Score(const v1::ScoreRequest& request,
                                CancellableCall& call,
                                v1::ScoreResult& result) {
  return inference_->Score(&call.context_, request, &result);
}

grpc::Status FlashClient::GetServerInfo(v1::ServerInfo& info) {
  CancellableCall call(kInfoTimeout);
  return control_->GetServerInfo(&call.context_, {}, &info);
}

grpc::Status FlashClient::GetModelInfo(v1::ModelInfo& info) {
  CancellableCall call(kInfoTimeout);
  return control_->GetModelInfo(&call.context_, {}, &info);
}

grpc::Status FlashClient::WaitUntilServing(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  grpc::health::v1::HealthCheckRequest request;
  request.set_service("flash.v1.Inference");
  while (true) {
    CancellableCall call(kProbeTimeout);
    grpc::health::v1::HealthCheckResponse response;
    grpc::Status status = health_->Check(&call.context_, request, &response);
    if (status.ok() &&
        response.status() == grpc::health::v1::HealthCheckResponse::SERVING) {
      return status;
    }
    if (status.ok()) {
      status = grpc::Status(grpc::StatusCode::UNAVAILABLE,
                            "the server is there, but takes no requests now");
    }
    if (std::chrono::steady_clock::now() >= deadline) return status;
    std::this_thread::sleep_for(kProbePause);
  }
}

}  // namespace flash
