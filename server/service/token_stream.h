// The gRPC side of one Generate call: takes tokens from the decode thread and
// writes them to the client.

#ifndef SERVER_SERVICE_TOKEN_STREAM_H_
#define SERVER_SERVICE_TOKEN_STREAM_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "kernels/mutex.h"
#include "server/service/call.h"
#include "server/service/linger.h"

namespace flash {

// At most one write is in flight; the events that come meanwhile wait in
// outbox_. When that holds parts().outbox_events of them the stream is full,
// and no longer when half of them are gone. Finish() is called exactly once,
// when the request is over and no write is in flight, cancelled or not. If the
// client then reads nothing for parts().linger, the call is cancelled; as it is
// when an output waits so long for its save, which comes after its events.
//
// Thread safety: as Call.
// Lifetime: shared by gRPC, from Start() to OnDone(), and by the request.
class TokenStream final : public Call,
                          public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  // Returns a stream that gRPC may be given; it keeps itself until OnDone().
  static std::shared_ptr<TokenStream> Start(
      const CallParts& parts, CallOrigin origin,
      grpc::CallbackServerContext* context);

  // RequestSink, on the decode thread.
  void OnAccepted(const Accepted& accepted) override;
  void OnPrompt(PromptOutput prompt) override;
  void OnToken(TokenOutput token) override;
  int64_t Room() const override { return room_.load(); }

  // grpc::ServerWriteReactor, on gRPC's threads, which must not be held up.
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  using Call::OnDone;  // the request's

 protected:
  void WhenTaken(std::function<void()> then) override;
  void Tell(Finished finished,
            const std::optional<SessionInfo>& session) override;
  void Close(const absl::Status& status, const Usage& usage,
             const Timings& timings) override;

 private:
  TokenStream(const CallParts& parts, CallOrigin origin,
              grpc::CallbackServerContext* context)
      : Call(parts, std::move(origin)),
        context_(context),
        linger_(std::make_shared<Linger>(context, parts.linger)),
        room_(parts.outbox_events) {}

  void Push(const v1::GenerateEvent& event)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Starts the next write, or Finish(), if one is due and none is in flight.
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Moves to `due` what waits for events that are written, or for nothing more.
  void TakeDue(std::vector<std::function<void()>>& due)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Makes room_ say what outbox_ has, and tells the engine when it has some
  // again.
  void UpdateRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  grpc::CallbackServerContext* const context_;
  const std::shared_ptr<Linger> linger_;
  std::atomic<int64_t> room_;  // 0: full

  Mutex mutex_;
  // The front one is being written iff write_in_flight_.
  std::deque<grpc::ByteBuffer> outbox_ ABSL_GUARDED_BY(mutex_);
  int64_t num_written_ ABSL_GUARDED_BY(mutex_) = 0;  // events that have left it
  // What is to be called when so many events are written, in that order. While
  // there are any, a write is in flight.
  struct Waiting {
    int64_t num_written = 0;
    std::function<void()> then;
  };
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> waits_{false};  // false: there are none
  bool write_in_flight_ ABSL_GUARDED_BY(mutex_) = false;
  bool finish_called_ ABSL_GUARDED_BY(mutex_) = false;
  // Why an event could not be written; the call ends with it.
  absl::Status unwritable_ ABSL_GUARDED_BY(mutex_);
  std::optional<grpc::Status> outcome_ ABSL_GUARDED_BY(mutex_);
  int32_t num_finished_ ABSL_GUARDED_BY(mutex_) = 0;
  // The `finished` of the output that is told last, which waits for the usage.
  std::optional<v1::GenerateEvent> last_event_ ABSL_GUARDED_BY(mutex_);

  std::shared_ptr<TokenStream> self_;  // set by Start(), dropped by OnDone()
};

}  // namespace flash

#endif  // SERVER_SERVICE_TOKEN_STREAM_H_
