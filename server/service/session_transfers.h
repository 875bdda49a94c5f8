// Sessions on their way out and in: the streams of Sessions.Export and Import.
// Each holds a session's bytes, for as long as its client takes: so there are
// only so many at a time.

#ifndef SERVER_SERVICE_SESSION_TRANSFERS_H_
#define SERVER_SERVICE_SESSION_TRANSFERS_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/model/state_bytes.h"
#include "server/service/budget.h"
#include "server/service/call.h"
#include "server/service/linger.h"
#include "server/service/unary_call.h"

namespace flash {

// A client may be slow, but not for ever: a transfer takes at most so many
// times parts.linger, or ends with DEADLINE_EXCEEDED.
inline constexpr int kMaxLingers = 10;

// Sends a session, in chunks of at most 256 KiB. A client that reads nothing
// for parts.linger is cancelled.
//
// Thread safety: Start() on any thread; the rest is gRPC's and the worker's,
// one after the other.
class ExportCall final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  // The call keeps itself until it is over.
  static grpc::ServerWriteReactor<grpc::ByteBuffer>* Start(
      const CallParts& parts, grpc::CallbackServerContext* context,
      const grpc::ByteBuffer& request);

  void OnWriteDone(bool ok) override;
  void OnDone() override;

 private:
  ExportCall(const CallParts& parts, grpc::CallbackServerContext* context)
      : parts_(parts),
        context_(*context),
        linger_(std::make_shared<Linger>(context, parts.linger)) {}

  // On a store worker.
  void Begin(const std::string& owner, const std::string& id);
  void WriteNext();
  void End(const absl::Status& status);

  const CallParts& parts_;
  grpc::CallbackServerContext& context_;
  const std::shared_ptr<Linger> linger_;
  Budget::Share share_;
  std::shared_ptr<const std::string> session_;
  Clock::time_point last_moment_;  // set when the session is here
  size_t num_sent_ = 0;
  grpc::ByteBuffer chunk_;  // that is being written

  std::unique_ptr<ExportCall> self_;  // set by Start(), dropped by OnDone()
};

// Takes a session. A client that sends nothing for parts.linger is told
// DEADLINE_EXCEEDED.
//
// Thread safety: as ExportCall.
class ImportCall final : public grpc::ServerReadReactor<grpc::ByteBuffer> {
 public:
  // The call keeps itself until it is over.
  static grpc::ServerReadReactor<grpc::ByteBuffer>* Start(
      const CallParts& parts, UnarySlots slots);

  // What had come of a session that is not to be is overwritten.
  ~ImportCall() override { Wipe(session_); }

  void OnReadDone(bool ok) override;
  void OnDone() override;

 private:
  ImportCall(const CallParts& parts, UnarySlots slots)
      : parts_(parts),
        slots_(slots),
        last_moment_(Clock::now() + kMaxLingers * parts.linger),
        reading_(std::make_shared<Linger>([this] { OnIdle(); }, parts.linger)),
        answering_(std::make_shared<Linger>(slots.context, parts.linger)) {}

  // The client sends nothing.
  void OnIdle();
  // Appends chunk_.
  absl::Status Take();
  // Whether it is for the caller to go on: for one of those who find that
  // nothing more is to be read.
  bool EndReading() { return !has_read_.exchange(true); }
  // On a store worker, when all is there.
  absl::Status Import();
  void End(const absl::Status& status);

  const CallParts& parts_;
  const UnarySlots slots_;
  const Clock::time_point last_moment_;
  const std::shared_ptr<Linger> reading_;
  const std::shared_ptr<Linger> answering_;
  Budget::Share share_;
  std::string owner_;
  grpc::ByteBuffer chunk_;  // that is being read
  std::string session_;     // so far
  std::atomic<bool> has_read_{false};

  std::unique_ptr<ImportCall> self_;  // set by Start(), dropped by OnDone()
};

}  // namespace flash

#endif  // SERVER_SERVICE_SESSION_TRANSFERS_H_
