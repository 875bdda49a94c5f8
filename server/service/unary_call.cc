#include "server/service/unary_call.h"

#include <utility>

#include "server/service/byte_messages.h"
#include "server/service/errors.h"

namespace flash {

UnaryCall::UnaryCall(const CallParts& parts, CallOrigin origin,
                     UnarySlots slots, std::unique_ptr<Collector> collector)
    : Call(parts, std::move(origin)),
      slots_(slots),
      collector_(std::move(collector)),
      linger_(std::make_shared<Linger>(slots.context, parts.linger)) {}

std::shared_ptr<UnaryCall> UnaryCall::Start(
    const CallParts& parts, CallOrigin origin, UnarySlots slots,
    std::unique_ptr<Collector> collector) {
  std::shared_ptr<UnaryCall> call(
      new UnaryCall(parts, std::move(origin), slots, std::move(collector)));
  call->self_ = call;
  return call;
}

void UnaryCall::OnAccepted(const Accepted& accepted) {
  MutexLock lock(&mutex_);
  collector_->OnAccepted(accepted, facts());
}

void UnaryCall::OnPrompt(PromptOutput prompt) {
  MutexLock lock(&mutex_);
  collector_->OnPrompt(std::move(prompt));
}

void UnaryCall::OnToken(TokenOutput token) {
  MutexLock lock(&mutex_);
  collector_->OnToken(std::move(token));
}

void UnaryCall::Tell(Finished finished,
                     const std::optional<SessionInfo>& session) {
  MutexLock lock(&mutex_);
  collector_->OnFinished(std::move(finished), session);
}

void UnaryCall::Close(const absl::Status& status, const Usage& usage,
                      const Timings& timings) {
  absl::Status outcome = status;
  if (outcome.ok()) {
    MutexLock lock(&mutex_);
    collector_->OnUsage(usage, timings);
    auto answer = ToByteBuffer(collector_->result());
    if (answer.ok()) *slots_.response = *std::move(answer);
    outcome = answer.status();
  }
  End(outcome, usage, timings);
  AddRetryTrailer(outcome, *slots_.context);
  linger_->Start();
  Finish(ToGrpcStatus(outcome));
}

absl::Status UnaryCall::CheckSize(const Request& request) const {
  return parts().parser->CheckUnarySize(request);
}

void UnaryCall::OnDone() {
  const std::shared_ptr<UnaryCall> self = std::move(self_);
  linger_->Stop();
}

}  // namespace flash
