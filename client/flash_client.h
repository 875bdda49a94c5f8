// A client of flash-server: each call of flash.v1 as a function that waits.

#ifndef CLIENT_FLASH_CLIENT_H_
#define CLIENT_FLASH_CLIENT_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "flash/v1/control.grpc.pb.h"
#include "flash/v1/inference.grpc.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace flash {

// One call that another thread may cancel.
//
// Thread safety: Cancel() from any thread, at any time.
class CancellableCall {
 public:
  // `timeout`: the call's deadline from now; none: as long as it takes.
  explicit CancellableCall(
      std::optional<std::chrono::milliseconds> timeout = std::nullopt) {
    if (timeout.has_value()) {
      context_.set_deadline(std::chrono::system_clock::now() + *timeout);
    }
  }

  void Cancel() { context_.TryCancel(); }

 private:
  friend class FlashClient;
  grpc::ClientContext context_;
};

// Each function makes one call, returns when it has ended, and gives its
// status; see ErrorText() for what a status says. A call object serves once.
//
// Thread safety: every function may be called from any number of threads.
class FlashClient {
 public:
  // Connects to HOST:PORT when it is first used, and again when it is lost.
  explicit FlashClient(const std::string& address);

  // Calls `on_event` with each event as it comes, on this thread.
  grpc::Status Generate(
      const v1::GenerateRequest& request, CancellableCall& call,
      const std::function<void(const v1::GenerateEvent&)>& on_event);

  grpc::Status GenerateUnary(const v1::GenerateRequest& request,
                             CancellableCall& call, v1::GenerateResult& result);
  grpc::Status Score(const v1::ScoreRequest& request, CancellableCall& call,
                     v1::ScoreResult& result);
  grpc::Status GetServerInfo(v1::ServerInfo& info);
  grpc::Status GetModelInfo(v1::ModelInfo& info);

  // Returns OK once the server takes requests, and the last reason why not if
  // it does not before `timeout`.
  grpc::Status WaitUntilServing(std::chrono::milliseconds timeout);

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Inference::Stub> inference_;
  const std::unique_ptr<v1::Control::Stub> control_;
  const std::unique_ptr<grpc::health::v1::Health::Stub> health_;
};

}  // namespace flash

#endif  // CLIENT_FLASH_CLIENT_H_
