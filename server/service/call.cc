#include "server/service/call.h"

#include <span>
#include <utility>
#include <vector>

#include "server/scheduler/prefix_keys.h"
#include "server/service/byte_messages.h"
#include "server/service/errors.h"

namespace flash {
namespace {

// A request on its way to the engine.
struct Admission {
  std::shared_ptr<Call> call;
  std::unique_ptr<Request> request;
};

absl::Status Submit(Admission& admission) {
  Call& call = *admission.call;
  Request& request = *admission.request;
  const CallParts& parts = call.parts();
  absl::Status status = parts.parser->Settle(request);
  if (status.ok()) status = call.CheckSize(request);
  if (!status.ok()) return status;
  call.Resolve(request);
  request.sink = admission.call;
  status = parts.engine->Submit(std::move(admission.request));
  return status.ok() ? status : SubmitError(status);
}

// Whether another server may have left a state of this text.
bool MayHaveCheckpoint(const CallParts& parts, const Request& request) {
  return parts.checkpoints != nullptr && parts.prefix_cache != nullptr &&
         request.prior_output_ids.size() == 1 &&
         !request.prior_output_ids[0].empty();
}

// On a store worker: puts that state where the engine finds it. Without it the
// text is run again, so nothing that goes wrong here is told.
void RecallCheckpoint(const CallParts& parts, const Request& request) {
  if (!MayHaveCheckpoint(parts, request)) return;
  PrefixCache& cache = *parts.prefix_cache;
  const int64_t chunk = parts.parser->model().chunk_size;
  std::vector<PrefixKey> keys =
      PrefixKeysOf(cache, request, static_cast<int>(chunk));
  // Boundaries that leave an id to run: others are not looked for.
  const int64_t num_ids = static_cast<int64_t>(
      request.prompt.size() + request.prior_output_ids[0].size());
  if (num_ids % chunk == 0 && !keys.empty()) keys.pop_back();
  auto found = parts.checkpoints->Recall(request.owner, request.id, keys);
  if (found.ok()) cache.Put(keys, found->num_chunks, std::move(found->state));
}

// On a store worker: waits for what the request goes on from.
absl::Status OpenAndSubmit(Admission& admission, RequestSessions& sessions) {
  if (admission.call->IsCancelled()) return absl::CancelledError("cancelled");
  auto start = sessions.Open();
  if (!start.ok()) return start.status();
  Request& request = *admission.request;
  request.start = *std::move(start);
  // What it goes on from, and what it leaves, which may wait for the store.
  const CallParts& parts = admission.call->parts();
  int64_t bytes = sessions.use().save
                      ? request.num_outputs * parts.parser->model().state_bytes
                      : 0;
  if (request.start != nullptr && request.start->state != nullptr) {
    bytes += static_cast<int64_t>(request.start->state->size());
  }
  auto share = parts.session_bytes->Take(bytes);
  if (!share.ok()) return share.status();
  admission.call->Hold(*std::move(share));
  if (request.start == nullptr) {
    RecallCheckpoint(parts, request);
    return Submit(admission);
  }
  if (request.prompt.empty() &&
      (request.start->ended || request.start->pending.empty())) {
    return SessionEnded(sessions.use().id);
  }
  if (sessions.use().keeps_seed) request.sampling.seed = request.start->seed;
  return Submit(admission);
}

void EndIfFailed(Call& call, const absl::Status& status) {
  if (!status.ok()) call.OnDone(status, Usage{}, Timings{});
}

// Here, unless there may be something to recall.
absl::Status RecallAndSubmit(const std::shared_ptr<Admission>& admission) {
  const CallParts& parts = admission->call->parts();
  if (!MayHaveCheckpoint(parts, *admission->request)) return Submit(*admission);
  const absl::Status taken =
      parts.store_workers->TryRun(0, [admission, &parts] {
        RecallCheckpoint(parts, *admission->request);
        EndIfFailed(*admission->call, Submit(*admission));
      });
  return taken.ok() ? taken : Submit(*admission);
}

// In the order of: what the message says, its id, its prompt, its session, the
// engine.
template <typename WireRequest>
absl::Status ReadAndSubmit(const grpc::ByteBuffer& bytes,
                           const std::shared_ptr<Call>& call) {
  const CallParts& parts = call->parts();
  if (!call->origin().owner.ok()) return call->origin().owner.status();
  WireRequest wire;
  absl::Status status = FromByteBuffer(bytes, wire);
  if (!status.ok()) return status;
  auto parsed = parts.parser->Parse(wire);
  if (!parsed.ok()) return parsed.status();
  const auto admission =
      std::make_shared<Admission>(Admission{call, *std::move(parsed)});
  Request& request = *admission->request;
  request.owner = *call->origin().owner;
  auto lease = parts.live_ids->Claim(request.owner, request.id);
  if (!lease.ok()) return lease.status();
  call->Name(request.id, *std::move(lease));
  request.deadline = call->origin().deadline;
  status = parts.parser->ReadPrompt(InputOf(wire), request);
  if (!status.ok()) return status;

  const SessionUse use = SessionUseOf(wire);
  if (use.id.empty() && !use.save) return RecallAndSubmit(admission);
  if (parts.sessions == nullptr) {
    return InvalidRequest({{use.id.empty() ? "save_session" : "session",
                            "is set; this server keeps no sessions"}});
  }
  RequestSessions& sessions = call->UseSessions(use, request);
  return parts.store_workers->TryRun(
      request.prompt.size() * sizeof(int32_t), [admission, &sessions] {
        EndIfFailed(*admission->call, OpenAndSubmit(*admission, sessions));
      });
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

RequestSessions& Call::UseSessions(SessionUse use, const Request& request) {
  return sessions_.emplace(parts_.sessions, std::move(use), request.owner,
                           request.id);
}

void Call::Resolve(const Request& request) {
  facts_.model = parts_.parser->model().name;
  facts_.max_tokens = request.stopping.max_tokens;
  facts_.min_tokens = request.stopping.min_tokens;
  facts_.num_outputs = request.num_outputs;
  if (sessions_.has_value()) facts_.session_epoch = sessions_->epoch();
}

void Call::OnFinished(Finished finished) {
  if (!sessions_.has_value() || !sessions_->use().save) {
    return Tell(std::move(finished), std::nullopt);
  }
  {
    MutexLock lock(&saves_mutex_);
    ++num_saves_;
  }
  // A session covers what was told, and nothing else: who leaves before the
  // end has been read leaves the session as it was.
  WhenTaken([self = shared_from_this(), finished = std::move(finished)] {
    self->parts_.store_workers->Run(
        [self, finished]() mutable { self->SaveAndTell(std::move(finished)); });
  });
}

void Call::SaveAndTell(Finished finished) {
  absl::StatusOr<SessionInfo> saved = absl::CancelledError("cancelled");
  if (!IsCancelled()) saved = sessions_->Save(std::move(finished.snapshot));
  if (saved.ok()) {
    Tell(std::move(finished), *saved);
  } else {
    {
      MutexLock lock(&saves_mutex_);
      if (save_status_.ok()) save_status_ = saved.status();
    }
    // The other outputs are of no use, and theirs is not the first error. (One
    // that is alone is all told.)
    if (facts_.num_outputs > 1) Cancel();
  }
  std::optional<Outcome> outcome;
  {
    MutexLock lock(&saves_mutex_);
    if (--num_saves_ == 0) outcome = std::move(outcome_);
  }
  if (outcome.has_value()) Conclude(*std::move(outcome));
}

void Call::OnDone(const absl::Status& status, const Usage& usage,
                  const Timings& timings) {
  Outcome outcome{status, usage, timings};
  {
    MutexLock lock(&saves_mutex_);
    if (num_saves_ > 0) {
      outcome_ = std::move(outcome);
      return;
    }
  }
  if (!sessions_.has_value() || !sessions_->HoldsClaim()) {
    return Conclude(std::move(outcome));
  }
  parts_.store_workers->Run(
      [self = shared_from_this(), outcome = std::move(outcome)]() mutable {
        self->Conclude(std::move(outcome));
      });
}

void Call::Conclude(Outcome outcome) {
  if (sessions_.has_value()) sessions_->Release();
  {
    MutexLock lock(&saves_mutex_);
    const bool ours = outcome.status.ok() || absl::IsCancelled(outcome.status);
    if (ours && !save_status_.ok()) outcome.status = save_status_;
  }
  Close(outcome.status, outcome.usage, outcome.timings);
}

void Call::End(const absl::Status& status, const Usage& usage,
               const Timings& timings) {
  lease_ = LiveIds::Lease();
  share_.reset();
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
    EndIfFailed(*call, status);
  };
  if (bytes.Length() <= kLongTextBytes) return admit();
  const absl::Status taken =
      call->parts().text_workers->TryRun(bytes.Length(), admit);
  EndIfFailed(*call, taken);
}

template void Admit<v1::GenerateRequest>(const grpc::ByteBuffer& bytes,
                                         const std::shared_ptr<Call>& call);
template void Admit<v1::ScoreRequest>(const grpc::ByteBuffer& bytes,
                                      const std::shared_ptr<Call>& call);

}  // namespace flash
