// The gRPC server: our services and the standard ones, on one port.

#ifndef SERVER_SERVICE_GRPC_SERVER_H_
#define SERVER_SERVICE_GRPC_SERVER_H_

#include <limits>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/scheduler/engine.h"
#include "server/service/call.h"
#include "server/service/facts.h"
#include "server/service/identity.h"
#include "server/service/limits.h"
#include "server/sessions/checkpoint_keeper.h"
#include "server/sessions/prefix_cache.h"
#include "server/sessions/sessions.h"
#include "server/tokenizer/tokenizer.h"

namespace flash {

struct GrpcServerOptions {
  std::string listen;  // "HOST:PORT"; port 0 takes any
  ServiceLimits limits;
  ModelFacts model;
  ServerFacts server;
  size_t outbox_events = 64;  // at least 1
  // How long the rest of an answer waits for a client that reads nothing.
  Clock::duration linger = std::chrono::seconds(30);
  int text_threads = 1;
  // Calls that wait for the sessions' store at a time.
  int store_threads = 4;
  // These are borrowed; null: there are none.
  Sessions* sessions = nullptr;
  // What requests go on from and what they leave, from when they come until
  // it is saved, may take so many bytes.
  int64_t max_session_bytes = std::numeric_limits<int64_t>::max();
  // Sessions that are exported or imported at a time.
  int max_transfers = 16;
  CheckpointKeeper* checkpoints = nullptr;
  PrefixCache* prefix_cache = nullptr;
  // Who calls; null: everybody is one owner.
  std::shared_ptr<const Identity> identity;
  // Memory that gRPC may use for what goes through its connections; beyond that
  // it reads no more, and ends what is idle.
  size_t connection_bytes = size_t{512} << 20;
  // Streams that one client connection may have open; more wait in the client.
  int max_streams_per_connection = 1024;
  // The decode loop is taken to hang when it has not come round for this long.
  Clock::duration stale_after = std::chrono::seconds(30);
  // Told at the end of each call that runs a request, on any thread; must not
  // wait. May be empty.
  std::function<void(const CallReport&)> report;
};

// Serves flash.v1.Inference, flash.v1.Control, flash.v1.Sessions where there
// are any, grpc.health.v1.Health, reflection and channelz.
//
// Thread safety: Shutdown() and port() from any thread; the rest from one.
class GrpcServer {
 public:
  // Serves from now on. `engine` and `tokenizer` are borrowed and outlive the
  // server. UNAVAILABLE if the address cannot be listened on.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(
      GrpcServerOptions options, Engine* engine, const Tokenizer* tokenizer);

  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  // Shuts down at once, if nobody did before.
  virtual ~GrpcServer() = default;

  // The port that it listens on.
  virtual int port() const = 0;

  // Health says NOT_SERVING from now on. Calls are still answered, so that a
  // client is told to go elsewhere rather than finding the door shut.
  virtual void LeaveService() = 0;

  // Takes no more calls; returns when those that run have ended, and cancels
  // them at `deadline`.
  virtual void Shutdown(Clock::time_point deadline) = 0;

 protected:
  GrpcServer() = default;
};

}  // namespace flash

#endif  // SERVER_SERVICE_GRPC_SERVER_H_
