#include "server/service/call.h"

#include <utility>

#include "server/service/errors.h"

namespace flash {
namespace {

void Refuse(const std::shared_ptr<Call>& call, const absl::Status& status) {
  call->OnDone(status, Usage{}, Timings{});
}

// The second half of Admit(), on whichever thread.
void ReadAndSubmit(PromptInput input, std::unique_ptr<Request> request,
                   const std::shared_ptr<Call>& call) {
  const CallParts& parts = call->parts();
  if (call->IsCancelled()) {
    Refuse(call, absl::CancelledError("the client cancelled"));
    return;
  }
  absl::Status status = parts.parser->ReadPrompt(input, *request);
  if (status.ok()) status = call->CheckSize(*request);
  if (!status.ok()) {
    Refuse(call, status);
    return;
  }
  call->Resolve(*request);
  request->sink = call;
  status = parts.engine->Submit(std::move(request));
  if (!status.ok()) Refuse(call, SubmitError(status));
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
void Admit(std::unique_ptr<WireRequest> wire, std::shared_ptr<Call> call) {
  const CallParts& parts = call->parts();
  auto request = parts.parser->Parse(*wire);
  if (!request.ok()) return Refuse(call, request.status());
  auto lease = parts.live_ids->Claim((*request)->id);
  if (!lease.ok()) return Refuse(call, lease.status());
  call->Name((*request)->id, *std::move(lease));
  (*request)->deadline = call->origin().deadline;

  const PromptInput input = InputOf(*wire);
  if (input.text == nullptr || input.text->size() <= kLongTextBytes) {
    return ReadAndSubmit(input, *std::move(request), call);
  }
  // std::function wants what can be copied.
  auto shared_wire = std::shared_ptr<WireRequest>(std::move(wire));
  auto shared_request =
      std::make_shared<std::unique_ptr<Request>>(*std::move(request));
  const bool taken =
      parts.text_workers->TryRun([shared_wire, shared_request, call] {
        ReadAndSubmit(InputOf(*shared_wire), std::move(*shared_request), call);
      });
  if (!taken) {
    Refuse(call, QueueFull("too many long texts wait to be tokenised"));
  }
}

template void Admit(std::unique_ptr<v1::GenerateRequest> wire,
                    std::shared_ptr<Call> call);
template void Admit(std::unique_ptr<v1::ScoreRequest> wire,
                    std::shared_ptr<Call> call);

}  // namespace flash
