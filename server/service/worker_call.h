// A unary call that is one piece of work: it runs no request.

#ifndef SERVER_SERVICE_WORKER_CALL_H_
#define SERVER_SERVICE_WORKER_CALL_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <cstddef>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "server/service/linger.h"
#include "server/service/unary_call.h"
#include "server/service/workers.h"

namespace flash {

// It is over when its work has run, and cancelled if the client then reads
// nothing for so long.
//
// Thread safety: Start() on any thread; the rest is gRPC's and the worker's.
class WorkerCall final : public grpc::ServerUnaryReactor {
 public:
  struct Work {
    Workers* workers = nullptr;  // null: runs where Start() is called
    size_t num_bytes = 0;        // that it holds
    std::function<absl::StatusOr<grpc::ByteBuffer>()> answer;
  };

  // The call keeps itself until it is over. Work whose client has left before
  // it begins is not done.
  static grpc::ServerUnaryReactor* Start(Clock::duration linger,
                                         UnarySlots slots, Work work);

  void OnDone() override;

 private:
  WorkerCall(Clock::duration linger, UnarySlots slots)
      : context_(*slots.context),
        linger_(std::make_shared<Linger>(slots.context, linger)) {}

  void End(const absl::Status& status);

  grpc::CallbackServerContext& context_;
  const std::shared_ptr<Linger> linger_;
  std::unique_ptr<WorkerCall> self_;  // set by Start(), dropped by OnDone()
};

}  // namespace flash

#endif  // SERVER_SERVICE_WORKER_CALL_H_
