// The gRPC side of one GenerateUnary or Score call: gathers the answer and
// sends it when it is complete.

#ifndef SERVER_SERVICE_UNARY_CALL_H_
#define SERVER_SERVICE_UNARY_CALL_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "kernels/mutex.h"
#include "server/service/call.h"
#include "server/service/collectors.h"
#include "server/service/linger.h"

namespace flash {

// Where gRPC keeps a unary call's context and answer, until OnDone().
struct UnarySlots {
  grpc::CallbackServerContext* context = nullptr;
  grpc::ByteBuffer* response = nullptr;
};

// Once the answer is on its way, the call is cancelled if the client reads
// nothing for parts().linger.
//
// Thread safety: as Call.
// Lifetime: shared by gRPC, from Start() to OnDone(), and by the request.
class UnaryCall final : public Call, public grpc::ServerUnaryReactor {
 public:
  // Returns a call that gRPC may be given; it keeps itself until OnDone().
  static std::shared_ptr<UnaryCall> Start(const CallParts& parts,
                                          CallOrigin origin, UnarySlots slots,
                                          std::unique_ptr<Collector> collector);

  // RequestSink, on the decode thread.
  void OnAccepted(const Accepted& accepted) override;
  void OnPrompt(PromptOutput prompt) override;
  void OnToken(TokenOutput token) override;

  absl::Status CheckSize(const Request& request) const override;

  // grpc::ServerUnaryReactor.
  void OnCancel() override { Cancel(); }
  void OnDone() override;
  using Call::OnDone;  // the request's

 protected:
  void Tell(Finished finished,
            const std::optional<SessionInfo>& session) override;
  void Close(const absl::Status& status, const Usage& usage,
             const Timings& timings) override;

 private:
  UnaryCall(const CallParts& parts, CallOrigin origin, UnarySlots slots,
            std::unique_ptr<Collector> collector);

  const UnarySlots slots_;
  Mutex mutex_;
  const std::unique_ptr<Collector> collector_ ABSL_PT_GUARDED_BY(mutex_);
  const std::shared_ptr<Linger> linger_;
  std::shared_ptr<UnaryCall> self_;  // set by Start(), dropped by OnDone()
};

}  // namespace flash

#endif  // SERVER_SERVICE_UNARY_CALL_H_
