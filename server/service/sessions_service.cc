#include "server/service/sessions_service.h"

#include <future>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "flash/v1/sessions.grpc.pb.h"
#include "server/service/byte_messages.h"
#include "server/service/errors.h"
#include "server/service/field_checks.h"
#include "server/service/session_transfers.h"
#include "server/service/worker_call.h"

namespace flash {
namespace {

using grpc::ByteBuffer;
using grpc::CallbackServerContext;

using RawService = v1::Sessions::WithRawCallbackMethod_Save<
    v1::Sessions::WithRawCallbackMethod_Get<
        v1::Sessions::WithRawCallbackMethod_List<
            v1::Sessions::WithRawCallbackMethod_Fork<
                v1::Sessions::WithRawCallbackMethod_Export<
                    v1::Sessions::WithRawCallbackMethod_Import<
                        v1::Sessions::WithRawCallbackMethod_Delete<
                            v1::Sessions::WithRawCallbackMethod_Pin<
                                v1::Sessions::Service>>>>>>>>;

void CheckId(const std::string& id, FieldChecks& checks) {
  if (id.empty()) checks.Add("id", "is not set; it is required");
}

// The answers, each from a request of a caller's. On a store worker.
class Answers {
 public:
  explicit Answers(const CallParts& parts)
      : sessions_(*parts.sessions),
        engine_(*parts.engine),
        limits_(parts.parser->limits()) {}

  absl::StatusOr<v1::Session> To(const std::string& owner,
                                 const v1::SaveSessionRequest& wire,
                                 FieldChecks& checks) {
    if (wire.request_id().empty()) {
      checks.Add("request_id", "is not set; it is required");
    }
    checks.Integer("output_index", wire.output_index(), 0,
                   limits_.max_outputs - 1);
    if (!checks.ok()) return checks.status();
    auto snapshot = TakeSnapshot(owner, wire.request_id(),
                                 static_cast<int>(wire.output_index()));
    if (!snapshot.ok()) return SnapshotError(snapshot.status());
    return Told(sessions_.Create(owner, wire.request_id(), *std::move(snapshot),
                                 std::nullopt));
  }

  absl::StatusOr<v1::Session> To(const std::string& owner,
                                 const v1::GetSessionRequest& wire,
                                 FieldChecks& checks) {
    CheckId(wire.id(), checks);
    if (!checks.ok()) return checks.status();
    return Told(sessions_.Get(owner, wire.id()));
  }

  absl::StatusOr<v1::ListSessionsResult> To(const std::string& owner,
                                            const v1::ListSessionsRequest& wire,
                                            FieldChecks& checks) {
    const uint32_t size = wire.has_page_size() ? wire.page_size() : 100;
    checks.Integer("page_size", size, 1, limits_.max_page_size);
    if (!checks.ok()) return checks.status();
    auto page = sessions_.List(owner, wire.page(), static_cast<int>(size));
    if (!page.ok()) return SessionError(page.status(), "page");
    v1::ListSessionsResult result;
    for (const SessionInfo& info : page->sessions) {
      *result.add_sessions() = ToWire(info);
    }
    result.set_next_page(std::move(page->next));
    return result;
  }

  absl::StatusOr<v1::ForkSessionResult> To(const std::string& owner,
                                           const v1::ForkSessionRequest& wire,
                                           FieldChecks& checks) {
    const uint32_t count = wire.has_count() ? wire.count() : 1;
    CheckId(wire.id(), checks);
    checks.Integer("count", count, 1, limits_.max_forks);
    if (!checks.ok()) return checks.status();
    const auto share = forks_.Take(count);
    if (!share.ok()) return share.status();
    auto forks = sessions_.Fork(owner, wire.id(), static_cast<int>(count));
    if (!forks.ok()) return SessionError(forks.status(), "count");
    v1::ForkSessionResult result;
    for (const SessionInfo& info : *forks) {
      *result.add_sessions() = ToWire(info);
    }
    return result;
  }

  absl::StatusOr<v1::DeleteSessionResult> To(
      const std::string& owner, const v1::DeleteSessionRequest& wire,
      FieldChecks& checks) {
    CheckId(wire.id(), checks);
    if (!checks.ok()) return checks.status();
    const absl::Status deleted = sessions_.Delete(owner, wire.id());
    if (!deleted.ok()) return SessionError(deleted);
    return v1::DeleteSessionResult();
  }

  absl::StatusOr<v1::Session> To(const std::string& owner,
                                 const v1::PinSessionRequest& wire,
                                 FieldChecks& checks) {
    CheckId(wire.id(), checks);
    checks.Integer("time_to_live_seconds", wire.time_to_live_seconds(), 1,
                   limits_.max_time_to_live_seconds);
    if (!checks.ok()) return checks.status();
    return Told(
        sessions_.Pin(
            owner, wire.id(),
            absl::Seconds(static_cast<int64_t>(wire.time_to_live_seconds()))),
        "time_to_live_seconds");
  }

 private:
  static absl::StatusOr<v1::Session> Told(
      const absl::StatusOr<SessionInfo>& info, std::string_view field = "id") {
    if (!info.ok()) return SessionError(info.status(), field);
    return ToWire(*info);
  }

  // Waits for the decode thread: at most for a step each of those that wait.
  absl::StatusOr<std::shared_ptr<const Snapshot>> TakeSnapshot(
      const std::string& owner, const std::string& request_id, int output) {
    using Taken = absl::StatusOr<std::shared_ptr<const Snapshot>>;
    const auto taken = std::make_shared<std::promise<Taken>>();
    engine_.TakeSnapshot(owner, request_id, output, [taken](Taken snapshot) {
      taken->set_value(std::move(snapshot));
    });
    return taken->get_future().get();
  }

  Sessions& sessions_;
  Engine& engine_;
  const ServiceLimits& limits_;
  // Forks that are being made: of many at once one call alone, which has one
  // worker for as long as they take; of a few, others beside it.
  Budget forks_{limits_.max_forks + 64, "too many sessions are being forked"};
};

class SessionsService final : public RawService {
 public:
  explicit SessionsService(const CallParts& parts)
      : parts_(parts), answers_(parts) {}

  grpc::ServerUnaryReactor* Save(CallbackServerContext* context,
                                 const ByteBuffer* request,
                                 ByteBuffer* response) override {
    return Run<v1::SaveSessionRequest>(*request, {context, response});
  }

  grpc::ServerUnaryReactor* Get(CallbackServerContext* context,
                                const ByteBuffer* request,
                                ByteBuffer* response) override {
    return Run<v1::GetSessionRequest>(*request, {context, response});
  }

  grpc::ServerUnaryReactor* List(CallbackServerContext* context,
                                 const ByteBuffer* request,
                                 ByteBuffer* response) override {
    return Run<v1::ListSessionsRequest>(*request, {context, response});
  }

  grpc::ServerUnaryReactor* Fork(CallbackServerContext* context,
                                 const ByteBuffer* request,
                                 ByteBuffer* response) override {
    return Run<v1::ForkSessionRequest>(*request, {context, response});
  }

  grpc::ServerWriteReactor<ByteBuffer>* Export(
      CallbackServerContext* context, const ByteBuffer* request) override {
    return ExportCall::Start(parts_, context, *request);
  }

  grpc::ServerReadReactor<ByteBuffer>* Import(CallbackServerContext* context,
                                              ByteBuffer* response) override {
    return ImportCall::Start(parts_, {context, response});
  }

  grpc::ServerUnaryReactor* Delete(CallbackServerContext* context,
                                   const ByteBuffer* request,
                                   ByteBuffer* response) override {
    return Run<v1::DeleteSessionRequest>(*request, {context, response});
  }

  grpc::ServerUnaryReactor* Pin(CallbackServerContext* context,
                                const ByteBuffer* request,
                                ByteBuffer* response) override {
    return Run<v1::PinSessionRequest>(*request, {context, response});
  }

 private:
  // Answers on a store worker.
  template <typename WireRequest>
  grpc::ServerUnaryReactor* Run(const ByteBuffer& request, UnarySlots slots) {
    auto answer = [this, owner = parts_.identity->OwnerOf(*slots.context),
                   bytes = request]() -> absl::StatusOr<ByteBuffer> {
      if (!owner.ok()) return owner.status();
      WireRequest wire;
      const absl::Status read = FromByteBuffer(bytes, wire);
      if (!read.ok()) return read;
      FieldChecks checks;
      checks.NoUnknownFields(wire);
      auto result = answers_.To(*owner, wire, checks);
      if (!result.ok()) return result.status();
      return ToByteBuffer(*result);
    };
    return WorkerCall::Start(
        parts_.linger, slots,
        {parts_.store_workers, request.Length(), std::move(answer)});
  }

  const CallParts& parts_;
  Answers answers_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeSessionsService(const CallParts& parts) {
  return std::make_unique<SessionsService>(parts);
}

}  // namespace flash
