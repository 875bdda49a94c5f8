#include "server/service/grpc_server.h"

#include <grpcpp/ext/channelz_service_plugin.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/codegen/service_type.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/stubs/logging.h"
#include "server/service/control_service.h"
#include "server/service/health_watcher.h"
#include "server/service/inference_service.h"
#include "server/service/live_ids.h"
#include "server/service/sessions_service.h"

namespace flash {
namespace {

constexpr char kInferenceHealth[] = "flash.v1.Inference";

// Request metadata; ours are small, and proxies add some.
constexpr int kMaxMetadataBytes = 16 << 10;

// These plug into every server that is built afterwards, so once is enough.
void InstallPlugins() {
  static std::once_flag once;
  std::call_once(once, [] {
    // A client's bad bytes are the client's to hear of, not the log's.
    google::protobuf::SetLogHandler(nullptr);
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::channelz::experimental::InitChannelzService();
  });
}

// Clients may ping every 10 seconds, with or without a call: proxies and
// gateways do, and gRPC's own bound of 5 minutes would close their connections.
// We ping after a minute of silence, and so find clients that are gone.
void SetChannelArguments(const GrpcServerOptions& options,
                         grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 60'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                             options.max_streams_per_connection);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  // Two servers on one port would each get some of the calls.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.SetMaxReceiveMessageSize(
      static_cast<int>(options.limits.max_message_bytes));
  builder.SetMaxSendMessageSize(-1);
}

class GrpcServerImpl final : public GrpcServer {
 public:
  GrpcServerImpl(GrpcServerOptions options, Engine* engine,
                 const Tokenizer* tokenizer)
      : options_(std::move(options)),
        engine_(*engine),
        identity_(options_.identity != nullptr ? options_.identity
                                               : MakeOneOwner()),
        parser_(options_.limits, options_.model, tokenizer),
        store_workers_(
            options_.store_threads,
            {.when_full = "too many calls wait for the sessions' store"}),
        text_workers_(options_.text_threads,
                      {.when_full = "too many long messages wait to be read"}),
        parts_{.parser = &parser_,
               .engine = engine,
               .live_ids = &live_ids_,
               .identity = identity_.get(),
               .text_workers = &text_workers_,
               .store_workers = &store_workers_,
               .sessions = options_.sessions,
               .session_bytes = &session_bytes_,
               .session_transfers = &session_transfers_,
               .checkpoints = options_.checkpoints,
               .prefix_cache = options_.prefix_cache,
               .report = options_.report,
               .outbox_events = options_.outbox_events,
               .linger = options_.linger},
        inference_(MakeInferenceService(parts_)),
        control_(MakeControlService(options_.server, parser_, *engine)),
        sessions_(parts_.sessions == nullptr ? nullptr
                                             : MakeSessionsService(parts_)) {}

  ~GrpcServerImpl() override {
    if (server_ == nullptr) return;
    Shutdown(Clock::now());
  }

  absl::Status Listen() {
    InstallPlugins();
    grpc::ServerBuilder builder;
    builder.AddListeningPort(options_.listen, grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(inference_.get());
    builder.RegisterService(control_.get());
    if (sessions_ != nullptr) builder.RegisterService(sessions_.get());
    SetChannelArguments(options_, builder);
    builder.SetResourceQuota(
        grpc::ResourceQuota("flash-server").Resize(options_.connection_bytes));
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ <= 0) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", options_.listen,
                       ": the address is in use, not of this machine, or not "
                       "HOST:PORT"));
    }
    auto* service = server_->GetHealthCheckService();
    using Health = HealthWatcher::Health;
    health_watcher_.emplace(&engine_, options_.stale_after,
                            [service](Health health) {
                              service->SetServingStatus(
                                  kInferenceHealth, health == Health::kServing);
                            });
    return absl::OkStatus();
  }

  int port() const override { return port_; }

  void LeaveService() override { health_watcher_->Leave(); }

  void Shutdown(Clock::time_point deadline) override {
    const auto left = deadline - Clock::now();
    server_->Shutdown(
        std::chrono::system_clock::now() +
        std::chrono::duration_cast<std::chrono::system_clock::duration>(left));
    server_->Wait();
  }

 private:
  const GrpcServerOptions options_;
  Engine& engine_;
  const std::shared_ptr<const Identity> identity_;
  const RequestParser parser_;
  LiveIds live_ids_;
  Budget session_bytes_{options_.max_session_bytes,
                        "too many sessions wait for a slot"};
  Budget session_transfers_{options_.max_transfers,
                            "too many sessions are being exported or imported"};
  Workers store_workers_;  // ends after the others, which give it work
  Workers text_workers_;
  const CallParts parts_;
  const std::unique_ptr<grpc::Service> inference_;
  const std::unique_ptr<grpc::Service> control_;
  const std::unique_ptr<grpc::Service> sessions_;  // null: there are none
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::optional<HealthWatcher> health_watcher_;  // ends before the server
};

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(
    GrpcServerOptions options, Engine* engine, const Tokenizer* tokenizer) {
  auto server =
      std::make_unique<GrpcServerImpl>(std::move(options), engine, tokenizer);
  const absl::Status status = server->Listen();
  if (!status.ok()) return status;
  return server;
}

}  // namespace flash
