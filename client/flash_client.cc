#include "client/flash_client.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>
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
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2'000);
  // Despite its name this is the time that one attempt to connect may take: of
  // a busy machine or a far one, up to the first bytes that it sends.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5'000);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                   arguments);
}

using SystemClock = std::chrono::system_clock;

std::optional<SystemClock::time_point> After(
    std::optional<std::chrono::milliseconds> timeout) {
  if (!timeout.has_value()) return std::nullopt;
  return SystemClock::now() + *timeout;
}

}  // namespace

CancellableCall::CancellableCall(
    std::optional<std::chrono::milliseconds> timeout)
    : deadline_(After(timeout)) {}

void CancellableCall::Cancel() {
  MutexLock lock(&mutex_);
  cancelled_ = true;
  if (context_ != nullptr) context_->TryCancel();
  cancel_.NotifyAll();
}

bool CancellableCall::cancelled() const {
  MutexLock lock(&mutex_);
  return cancelled_;
}

bool CancellableCall::Pause(std::chrono::milliseconds time) {
  const auto end = SystemClock::now() + time;
  const auto until = deadline_.has_value() ? std::min(*deadline_, end) : end;
  const auto left = until - SystemClock::now();
  const auto wake = std::chrono::steady_clock::now() + left;
  MutexLock lock(&mutex_);
  while (!cancelled_ && std::chrono::steady_clock::now() < wake) {
    cancel_.WaitUntil(&mutex_, wake);
  }
  return !cancelled_ && until == end;
}

grpc::ClientContext* CancellableCall::Begin(
    std::optional<std::chrono::milliseconds> timeout) {
  auto deadline = After(timeout);
  if (!deadline.has_value() ||
      (deadline_.has_value() && *deadline_ < *deadline)) {
    deadline = deadline_;
  }
  MutexLock lock(&mutex_);
  context_ = std::make_unique<grpc::ClientContext>();
  if (deadline.has_value()) context_->set_deadline(*deadline);
  if (cancelled_) context_->TryCancel();
  return context_.get();
}

FlashClient::FlashClient(const std::string& address)
    : channel_(Connect(address)),
      inference_(v1::Inference::NewStub(channel_)),
      sessions_(v1::Sessions::NewStub(channel_)),
      control_(v1::Control::NewStub(channel_)),
      health_(grpc::health::v1::Health::NewStub(channel_)) {}

grpc::Status FlashClient::Generate(
    const v1::GenerateRequest& request, CancellableCall& call,
    const std::function<void(v1::GenerateEvent&)>& on_event) {
  const auto reader = inference_->Generate(call.Begin(), request);
  v1::GenerateEvent event;
  while (reader->Read(&event)) on_event(event);
  return reader->Finish();
}

grpc::Status FlashClient::GenerateUnary(const v1::GenerateRequest& request,
                                        CancellableCall& call,
                                        v1::GenerateResult& result) {
  return inference_->GenerateUnary(call.Begin(), request, &result);
}

grpc::Status FlashClient::Score(const v1::ScoreRequest& request,
                                CancellableCall& call,
                                v1::ScoreResult& result) {
  return inference_->Score(call.Begin(), request, &result);
}

grpc::Status FlashClient::GetServerInfo(CancellableCall& call,
                                        v1::ServerInfo& info) {
  return control_->GetServerInfo(call.Begin(kInfoTimeout), {}, &info);
}

grpc::Status FlashClient::GetModelInfo(CancellableCall& call,
                                       v1::ModelInfo& info) {
  return control_->GetModelInfo(call.Begin(kInfoTimeout), {}, &info);
}

grpc::Status FlashClient::SaveSession(const v1::SaveSessionRequest& request,
                                      CancellableCall& call,
                                      v1::Session& session) {
  return sessions_->Save(call.Begin(), request, &session);
}

grpc::Status FlashClient::GetSession(const std::string& id,
                                     CancellableCall& call,
                                     v1::Session& session) {
  v1::GetSessionRequest request;
  request.set_id(id);
  return sessions_->Get(call.Begin(), request, &session);
}

grpc::Status FlashClient::ListSessions(const v1::ListSessionsRequest& request,
                                       CancellableCall& call,
                                       v1::ListSessionsResult& result) {
  return sessions_->List(call.Begin(), request, &result);
}

grpc::Status FlashClient::ForkSession(const v1::ForkSessionRequest& request,
                                      CancellableCall& call,
                                      v1::ForkSessionResult& result) {
  return sessions_->Fork(call.Begin(), request, &result);
}

grpc::Status FlashClient::DeleteSession(const std::string& id,
                                        CancellableCall& call) {
  v1::DeleteSessionRequest request;
  request.set_id(id);
  v1::DeleteSessionResult result;
  return sessions_->Delete(call.Begin(), request, &result);
}

grpc::Status FlashClient::PinSession(const v1::PinSessionRequest& request,
                                     CancellableCall& call,
                                     v1::Session& session) {
  return sessions_->Pin(call.Begin(), request, &session);
}

grpc::Status FlashClient::ExportSession(
    const std::string& id, CancellableCall& call,
    const std::function<bool(const std::string&)>& on_data) {
  v1::ExportSessionRequest request;
  request.set_id(id);
  grpc::ClientContext* context = call.Begin();
  const auto reader = sessions_->Export(context, request);
  v1::SnapshotChunk chunk;
  bool wanted = true;
  while (reader->Read(&chunk)) {
    if (!wanted || on_data(chunk.data())) continue;
    wanted = false;
    context->TryCancel();
  }
  const grpc::Status status = reader->Finish();
  // The stream may have ended by itself before the cancel.
  return wanted ? status
                : grpc::Status(grpc::StatusCode::CANCELLED, "cancelled");
}

grpc::Status FlashClient::ImportSession(
    const std::function<std::string()>& next, CancellableCall& call,
    v1::Session& session) {
  const auto writer = sessions_->Import(call.Begin(), &session);
  v1::SnapshotChunk chunk;
  for (chunk.set_data(next()); !chunk.data().empty(); chunk.set_data(next())) {
    if (!writer->Write(chunk)) break;
  }
  writer->WritesDone();
  return writer->Finish();
}

grpc::Status FlashClient::WaitUntilServing(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  grpc::health::v1::HealthCheckRequest request;
  request.set_service("flash.v1.Inference");
  while (true) {
    CancellableCall call;
    grpc::health::v1::HealthCheckResponse response;
    grpc::Status status =
        health_->Check(call.Begin(kProbeTimeout), request, &response);
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
