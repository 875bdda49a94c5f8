#include "server/service/token_stream.h"

#include <grpcpp/server_context.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "server/service/byte_messages.h"
#include "server/service/errors.h"

namespace flash {

std::shared_ptr<TokenStream> TokenStream::Start(
    const CallParts& parts, CallOrigin origin,
    grpc::CallbackServerContext* context) {
  std::shared_ptr<TokenStream> stream(
      new TokenStream(parts, std::move(origin), context));
  stream->self_ = stream;
  return stream;
}

void TokenStream::OnAccepted(const Accepted& accepted) {
  v1::GenerateEvent event;
  *event.mutable_accepted() = ToWire(accepted, facts());
  MutexLock lock(&mutex_);
  Push(event);
}

void TokenStream::OnPrompt(PromptOutput prompt) {
  for (v1::PromptOutput& part : ToWireParts(std::move(prompt))) {
    v1::GenerateEvent event;
    *event.mutable_prompt() = std::move(part);
    MutexLock lock(&mutex_);
    Push(event);
  }
}

void TokenStream::OnToken(TokenOutput token) {
  v1::GenerateEvent event;
  *event.mutable_token() = ToWire(std::move(token));
  MutexLock lock(&mutex_);
  Push(event);
}

void TokenStream::WhenTaken(std::function<void()> then) {
  {
    MutexLock lock(&mutex_);
    // First, so that either this sees that it is cancelled, or OnCancel() that
    // something waits.
    waits_.store(true);
    if (!outbox_.empty() && !IsCancelled()) {
      waiting_.push_back({num_written_ + static_cast<int64_t>(outbox_.size()),
                          std::move(then)});
      return linger_->Start();
    }
  }
  then();
}

void TokenStream::Tell(Finished finished,
                       const std::optional<SessionInfo>& session) {
  v1::GenerateEvent event;
  *event.mutable_finished() = ToWire(finished, session);
  MutexLock lock(&mutex_);
  if (++num_finished_ < facts().num_outputs) {
    Push(event);
  } else {
    last_event_ = std::move(event);
  }
}

void TokenStream::Close(const absl::Status& status, const Usage& usage,
                        const Timings& timings) {
  End(status, usage, timings);
  MutexLock lock(&mutex_);
  if (status.ok() && last_event_.has_value()) {
    *last_event_->mutable_usage() = ToWire(usage);
    *last_event_->mutable_timing() = ToWire(timings);
    Push(*last_event_);
  }
  AddRetryTrailer(status, *context_);
  outcome_ = ToGrpcStatus(unwritable_.ok() ? status : unwritable_);
  linger_->Start();
  Advance();
}

void TokenStream::OnWriteDone(bool ok) {
  std::vector<std::function<void()>> due;
  {
    MutexLock lock(&mutex_);
    linger_->OnProgress();
    write_in_flight_ = false;
    outbox_.pop_front();
    ++num_written_;
    if (!ok) {  // the client is gone: there is nobody to write to
      Cancel();
      outbox_.clear();
    }
    TakeDue(due);
    UpdateRoom();
    Advance();
  }
  for (const std::function<void()>& then : due) then();
}

void TokenStream::OnCancel() {
  Cancel();
  if (!waits_.load()) return;
  // On a worker, since gRPC may be calling from within the linger's lock.
  parts().store_workers->Run([self = shared_from_this(), this] {
    std::vector<std::function<void()>> due;
    {
      MutexLock lock(&mutex_);
      TakeDue(due);
    }
    for (const std::function<void()>& then : due) then();
  });
}

void TokenStream::OnDone() {
  const std::shared_ptr<TokenStream> self = std::move(self_);
  linger_->Stop();
}

void TokenStream::Push(const v1::GenerateEvent& event) {
  if (IsCancelled()) return;
  auto bytes = ToByteBuffer(event);
  if (!bytes.ok()) {
    unwritable_ = bytes.status();
    return Cancel();
  }
  outbox_.push_back(*std::move(bytes));
  UpdateRoom();
  Advance();
}

void TokenStream::Advance() {
  if (write_in_flight_ || finish_called_) return;
  if (!outbox_.empty() && !IsCancelled()) {
    write_in_flight_ = true;
    StartWrite(&outbox_.front());
  } else if (outcome_.has_value()) {
    finish_called_ = true;
    Finish(*outcome_);
  }
}

void TokenStream::TakeDue(std::vector<std::function<void()>>& due) {
  if (waiting_.empty()) return;
  while (!waiting_.empty() &&
         (waiting_.front().num_written <= num_written_ || IsCancelled())) {
    due.push_back(std::move(waiting_.front().then));
    waiting_.pop_front();
  }
  if (!waiting_.empty()) return;
  waits_.store(false);
  if (!outcome_.has_value()) linger_->Pause();
}

void TokenStream::UpdateRoom() {
  const int64_t most = parts().outbox_events;
  const int64_t size = static_cast<int64_t>(outbox_.size());
  const bool was_full = room_.load() == 0;
  if (was_full && size > most / 2) return;
  room_.store(std::max<int64_t>(most - size, 0));
  if (was_full) parts().engine->Notify();
}

}  // namespace flash
