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

#include "absl/base/thread_annotations.h"
#include "flash/v1/control.grpc.pb.h"
#include "flash/v1/inference.grpc.pb.h"
#include "flash/v1/sessions.grpc.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "kernels/mutex.h"

namespace flash {

// The most bytes that a SnapshotChunk may have.
inline constexpr size_t kMaxSnapshotChunk = size_t{256} << 10;

// What somebody asked for and may call off: one call, or several that follow on
// each other, which then share the deadline.
//
// Thread safety: Cancel() and cancelled() from any thread, at any time; the
// rest by the thread that makes the calls.
class CancellableCall {
 public:
  // `timeout`: the deadline from now; none: as long as it takes.
  explicit CancellableCall(
      std::optional<std::chrono::milliseconds> timeout = std::nullopt);

  // Ends the call that runs, and those to come at once.
  void Cancel();
  bool cancelled() const;

  // Waits between two calls. False as soon as there is nothing to wait for:
  // it was cancelled, or the deadline has passed.
  bool Pause(std::chrono::milliseconds time);

 private:
  friend class FlashClient;

  // The context of the next call. `timeout`: its own, if that ends earlier.
  grpc::ClientContext* Begin(
      std::optional<std::chrono::milliseconds> timeout = std::nullopt);

  const std::optional<std::chrono::system_clock::time_point> deadline_;
  mutable Mutex mutex_;
  CondVar cancel_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<grpc::ClientContext> context_ ABSL_GUARDED_BY(mutex_);
};

// Each function makes one call, returns when it has ended, and gives its
// status; see ErrorText() for what a status says.
//
// Thread safety: every function may be called from any number of threads.
class FlashClient {
 public:
  // Connects to HOST:PORT when it is first used, and again when it is lost.
  explicit FlashClient(const std::string& address);

  // Calls `on_event` with each event as it comes, on this thread. The event is
  // the callee's to change.
  grpc::Status Generate(
      const v1::GenerateRequest& request, CancellableCall& call,
      const std::function<void(v1::GenerateEvent&)>& on_event);

  grpc::Status GenerateUnary(const v1::GenerateRequest& request,
                             CancellableCall& call, v1::GenerateResult& result);
  grpc::Status Score(const v1::ScoreRequest& request, CancellableCall& call,
                     v1::ScoreResult& result);

  // These take ten seconds at most.
  grpc::Status GetServerInfo(CancellableCall& call, v1::ServerInfo& info);
  grpc::Status GetModelInfo(CancellableCall& call, v1::ModelInfo& info);

  grpc::Status SaveSession(const v1::SaveSessionRequest& request,
                           CancellableCall& call, v1::Session& session);
  grpc::Status GetSession(const std::string& id, CancellableCall& call,
                          v1::Session& session);
  // One page.
  grpc::Status ListSessions(const v1::ListSessionsRequest& request,
                            CancellableCall& call,
                            v1::ListSessionsResult& result);
  grpc::Status ForkSession(const v1::ForkSessionRequest& request,
                           CancellableCall& call,
                           v1::ForkSessionResult& result);
  grpc::Status DeleteSession(const std::string& id, CancellableCall& call);
  grpc::Status PinSession(const v1::PinSessionRequest& request,
                          CancellableCall& call, v1::Session& session);

  // Gives the session's bytes to `on_data`, in order. Once that returns false,
  // it is not called again, and the call ends with CANCELLED.
  grpc::Status ExportSession(
      const std::string& id, CancellableCall& call,
      const std::function<bool(const std::string&)>& on_data);
  // Sends what `next` returns until that is empty, at most kMaxSnapshotChunk a
  // time. A server that has heard enough is not sent the rest.
  grpc::Status ImportSession(const std::function<std::string()>& next,
                             CancellableCall& call, v1::Session& session);

  // Returns OK once the server takes requests, and the last reason why not if
  // it does not before `timeout`.
  grpc::Status WaitUntilServing(std::chrono::milliseconds timeout);

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Inference::Stub> inference_;
  const std::unique_ptr<v1::Sessions::Stub> sessions_;
  const std::unique_ptr<v1::Control::Stub> control_;
  const std::unique_ptr<grpc::health::v1::Health::Stub> health_;
};

}  // namespace flash

#endif  // CLIENT_FLASH_CLIENT_H_
