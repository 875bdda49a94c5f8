#include "server/service/session_transfers.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "flash/v1/sessions.pb.h"
#include "server/service/byte_messages.h"
#include "server/service/errors.h"
#include "server/service/field_checks.h"

namespace flash {
namespace {

constexpr size_t kChunkBytes = 256 << 10;

int64_t Milliseconds(Clock::duration time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
}

absl::Status TooLate(const char* what, Clock::duration time) {
  return absl::DeadlineExceededError(
      absl::StrCat("the client ", what, " ", Milliseconds(time), " ms"));
}

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* ExportCall::Start(
    const CallParts& parts, grpc::CallbackServerContext* context,
    const grpc::ByteBuffer& request) {
  auto* call = new ExportCall(parts, context);
  call->self_.reset(call);
  const auto begin = [&]() -> absl::Status {
    auto owner = parts.identity->OwnerOf(*context);
    if (!owner.ok()) return owner.status();
    v1::ExportSessionRequest wire;
    const absl::Status read = FromByteBuffer(request, wire);
    if (!read.ok()) return read;
    FieldChecks checks;
    checks.NoUnknownFields(wire);
    if (wire.id().empty()) checks.Add("id", "is not set; it is required");
    if (!checks.ok()) return checks.status();
    auto share = parts.session_transfers->Take(1);
    if (!share.ok()) return share.status();
    call->share_ = *std::move(share);
    return parts.store_workers->TryRun(
        0, [call, owner = *std::move(owner), id = wire.id()] {
          call->Begin(owner, id);
        });
  };
  const absl::Status begun = begin();
  if (!begun.ok()) call->End(begun);
  return call;
}

void ExportCall::Begin(const std::string& owner, const std::string& id) {
  if (context_.IsCancelled()) return End(absl::CancelledError("cancelled"));
  auto session = parts_.sessions->Export(owner, id);
  if (!session.ok()) return End(SessionError(session.status()));
  session_ = *std::move(session);
  last_moment_ = Clock::now() + kMaxLingers * parts_.linger;
  linger_->Start();
  WriteNext();
}

void ExportCall::WriteNext() {
  if (num_sent_ == session_->size()) {
    Finish(grpc::Status::OK);
    return;
  }
  const size_t size = std::min(kChunkBytes, session_->size() - num_sent_);
  v1::SnapshotChunk chunk;
  chunk.set_data(session_->data() + num_sent_, size);
  num_sent_ += size;
  auto bytes = ToByteBuffer(chunk);
  if (!bytes.ok()) {
    Finish(ToGrpcStatus(bytes.status()));
    return;
  }
  chunk_ = *std::move(bytes);
  StartWrite(&chunk_);
}

void ExportCall::OnWriteDone(bool ok) {
  linger_->OnProgress();
  if (!ok) {
    Finish(ToGrpcStatus(absl::CancelledError("cancelled")));
  } else if (num_sent_ < session_->size() && Clock::now() > last_moment_) {
    Finish(ToGrpcStatus(TooLate("did not read the session within",
                                kMaxLingers * parts_.linger)));
  } else {
    WriteNext();
  }
}

void ExportCall::End(const absl::Status& status) {
  AddRetryTrailer(status, context_);
  linger_->Start();
  Finish(ToGrpcStatus(status));
}

void ExportCall::OnDone() {
  const std::unique_ptr<ExportCall> self = std::move(self_);
  linger_->Stop();
}

grpc::ServerReadReactor<grpc::ByteBuffer>* ImportCall::Start(
    const CallParts& parts, UnarySlots slots) {
  auto* call = new ImportCall(parts, slots);
  call->self_.reset(call);
  auto owner = parts.identity->OwnerOf(*slots.context);
  auto share = parts.session_transfers->Take(1);
  if (!owner.ok() || !share.ok()) {
    call->End(owner.ok() ? share.status() : owner.status());
    return call;
  }
  call->owner_ = *std::move(owner);
  call->share_ = *std::move(share);
  call->reading_->Start();
  call->StartRead(&call->chunk_);
  return call;
}

void ImportCall::OnReadDone(bool ok) {
  if (ok) {
    absl::Status taken = Take();
    if (taken.ok() && Clock::now() > last_moment_) {
      taken = TooLate("did not send the session within",
                      kMaxLingers * parts_.linger);
    }
    if (taken.ok()) return StartRead(&chunk_);
    if (EndReading()) End(taken);
    return;
  }
  if (!EndReading()) return;
  const absl::Status begun =
      parts_.store_workers->TryRun(0, [this] { End(Import()); });
  if (!begun.ok()) End(begun);
}

void ImportCall::OnIdle() {
  if (!EndReading()) return;
  // Not here: End() stops the one who calls.
  parts_.store_workers->Run([this] {
    End(TooLate("sent nothing of the session for", parts_.linger));
  });
}

absl::Status ImportCall::Take() {
  v1::SnapshotChunk chunk;
  const absl::Status read = FromByteBuffer(chunk_, chunk);
  if (!read.ok()) return read;
  FieldChecks checks;
  checks.NoUnknownFields(chunk);
  const int64_t most = parts_.parser->limits().max_import_bytes;
  const int64_t size =
      static_cast<int64_t>(session_.size() + chunk.data().size());
  if (size > most) {
    checks.Add("data", absl::StrCat("has more than ", most,
                                    " bytes with the chunks before: the most "
                                    "that a session of this model has"));
  }
  if (!checks.ok()) return checks.status();
  if (!chunk.data().empty()) reading_->OnProgress();
  AppendAndWipe(session_, chunk.data());
  return absl::OkStatus();
}

absl::Status ImportCall::Import() {
  // gRPC ends the reading of a call that is cancelled as it ends others.
  if (slots_.context->IsCancelled()) return absl::CancelledError("cancelled");
  auto info = parts_.sessions->Import(owner_, std::move(session_));
  if (!info.ok()) return SessionError(info.status());
  auto answer = ToByteBuffer(ToWire(*info));
  if (answer.ok()) *slots_.response = *std::move(answer);
  return answer.status();
}

void ImportCall::End(const absl::Status& status) {
  reading_->Stop();
  AddRetryTrailer(status, *slots_.context);
  answering_->Start();
  Finish(ToGrpcStatus(status));
}

void ImportCall::OnDone() {
  const std::unique_ptr<ImportCall> self = std::move(self_);
  reading_->Stop();
  answering_->Stop();
}

}  // namespace flash
