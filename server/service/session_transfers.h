// Sessions on their way out and in: the streams of Sessions.Export and Import.
// Each holds a session's bytes, for as long as its client takes: so there are
// only so many at a time.

#ifndef SERVER_SERVICE_SESSION_TRANSFERS_H_
#define SERVER_SERVICE_SESSION_TRANSFERS_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/model/state_bytes.h"
#include "server/service/budget.h"
#include "server/service/call.h"
#include "server/service/linger.h"
#include "server/service/unary_call.h"

namespace flash {

// Sends a session, in chunks of at most 256 KiB. A client that reads nothing
// for parts.linger is cancelled.
//
// Thread safety: Start() on any thread; the rest is gRPC's and the worker's,
// one after the other.
class ExportCall final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  // The call keeps itself until it is over.
  static grpc::ServerWriteReactor<grpc::ByteBuffer>* Start(
      const CallParts& parts, Budget& transfers,
      grpc::CallbackServerContext* context, const grpc::ByteBuffer& request);

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
  size_t num_sent_ = 0;
  grpc::ByteBuffer chunk_;  // that is being written

  std::unique_ptr<ExportCall> self_;  // set by Start(), dropped by OnDone()
};

// Takes a session. A client that sends nothing for parts.linger is cancelled.
//
// Thread safety: as ExportCall.
class ImportCall final : public grpc::ServerReadReactor<grpc::ByteBuffer> {
 public:
  // The call keeps itself until it is over.
  static grpc::ServerReadReactor<grpc::ByteBuffer>* Start(
      const CallParts& parts, Budget& transfers, UnarySlots slots);

  // What had come of a session that is not to be is overwritten.
  ~ImportCall() override { Wipe(session_); }

  void OnReadDone(bool ok) override;
  void OnDone() override;

 private:
  ImportCall(const CallParts& parts, UnarySlots slots)
      : parts_(parts),
        slots_(slots),
        reading_(std::make_shared<Linger>(slots.context, parts.linger)),
        answering_(std::make_shared<Linger>(slots.context, parts.linger)) {}

  // Appends chunk_.
  absl::Status Take();
  // On a store worker, when all is there.
  absl::Status Import();
  void End(const absl::Status& status);

  const CallParts& parts_;
  const UnarySlots slots_;
  const std::shared_ptr<Linger> reading_;
  const std::shared_ptr<Linger> answering_;
  Budget::Share share_;
  std::string owner_;
  grpc::ByteBuffer chunk_;  // that is being read
  std::string session_;     // so far

  std::unique_ptr<ImportCall> self_;  // set by Start(), dropped by OnDone()
};

}  // namespace flash

#endif  // SERVER_SERVICE_SESSION_TRANSFERS_H_
