#include "server/service/call.h"

#include <utility>

#include "server/service/byte_messages.h"
#include "server/service/errors.h"

namespace flash {
namespace {

// In the order of: what the message says, its id, its prompt, the engine.
template <typename WireRequest>
absl::Status ReadAndSubmit(const grpc::ByteBuffer& bytes,
                           const std::shared_ptr<Call>& call) {
  const CallParts& parts = call->parts();
  if (call->IsCancelled()) return absl::CancelledError("the client cancelled");
  WireRequest wire;
  absl::Status status = FromByteBuffer(bytes, wire);
  if (!status.ok()) return status;
  auto parsed = parts.parser->Parse(wire);
  if (!parsed.ok()) return parsed.status();
  std::unique_ptr<Request> request = *std::move(parsed);
  auto lease = parts.live_ids->Claim(request->id);
  if (!lease.ok()) return lease.status();
  call->Name(request->id, *std::move(lease));
  request->deadline = call->origin().deadline;
  status = parts.parser->ReadPrompt(InputOf(wire), *request);
  if (status.ok()) status = call->CheckSize(*request);
  if (!status.ok()) return status;
  call->Resolve(*request);
  request->sink = call;
  status = parts.engine->Submit(std::move(request));
  return status.ok() ? status : SubmitError(status);
}

}  // namespace

Call::Call(const CallParts& parts, CallOrigin origin)
    : parts_(parts), origin_(std::move(origin)) {}

void Call::Cancel() {
  cancelled_.store(true);
  parts_.engine->Notify();
}

void Call::Name(const std::string& request_id, LiveIds::Lease lease) {
  facts_.request_id = request_id;
  lease_ = std::move(lease);
}

void Call::Resolve(const Request& request) {
  facts_.model = parts_.parser->model().name;
  facts_.max_tokens = request.stopping.max_tokens;
  facts_.min_tokens = request.stopping.min_tokens;
  facts_.num_outputs = request.num_outputs;
}

void Call::End(const absl::Status& status, const Usage& usage,
               const Timings& timings) {
  lease_ = LiveIds::Lease();
  if (!parts_.report) return;
  parts_.report({.method = origin_.method,
                 .peer = origin_.peer,
                 .request_id = facts_.request_id,
                 .status = status,
                 .usage = usage,
                 .timings = timings,
                 .total = Clock::now() - arrival_});
}

template <typename WireRequest>
void Admit(const grpc::ByteBuffer& bytes, const std::shared_ptr<Call>& call) {
  const auto admit = [bytes, call] {  // `bytes`: a copy of references
    // It may have been left while longer texts were read.
    const absl::Status status = call->IsCancelled()
                                    ? absl::CancelledError("cancelled")
                                    : ReadAndSubmit<WireRequest>(bytes, call);
    if (!status.ok()) call->OnDone(status, Usage{}, Timings{});
  };
  if (bytes.Length() <= kLongTextBytes) return admit();
  const absl::Status taken =
      call->parts().text_workers->TryRun(bytes.Length(), admit);
  if (!taken.ok()) call->OnDone(taken, Usage{}, Timings{});
}

template void Admit<v1::GenerateRequest>(const grpc::ByteBuffer& bytes,
                                         const std::shared_ptr<Call>& call);
template void Admit<v1::ScoreRequest>(const grpc::ByteBuffer& bytes,
                                      const std::shared_ptr<Call>& call);

}  // namespace flash
