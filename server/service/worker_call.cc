#include "server/service/worker_call.h"

#include <utility>

#include "server/service/errors.h"

namespace flash {

grpc::ServerUnaryReactor* WorkerCall::Start(Clock::duration linger,
                                            UnarySlots slots, Work work) {
  auto* call = new WorkerCall(linger, slots);
  call->self_.reset(call);
  auto run = [call, slots, answer = std::move(work.answer)] {
    absl::StatusOr<grpc::ByteBuffer> bytes = absl::CancelledError("cancelled");
    if (!slots.context->IsCancelled()) bytes = answer();
    if (bytes.ok()) *slots.response = *std::move(bytes);
    call->End(bytes.status());
  };
  if (work.workers == nullptr) {
    run();
    return call;
  }
  const absl::Status taken =
      work.workers->TryRun(work.num_bytes, std::move(run));
  if (!taken.ok()) call->End(taken);
  return call;
}

void WorkerCall::End(const absl::Status& status) {
  AddRetryTrailer(status, context_);
  linger_->Start();
  Finish(ToGrpcStatus(status));
}

void WorkerCall::OnDone() {
  const std::unique_ptr<WorkerCall> self = std::move(self_);
  linger_->Stop();
}

}  // namespace flash
