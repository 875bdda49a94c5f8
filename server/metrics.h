// What Prometheus is told: the engine's counts, read when it asks.

#ifndef SERVER_METRICS_H_
#define SERVER_METRICS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/scheduler/engine.h"
#include "server/service/call.h"

namespace flash {

// An HTTP server with /metrics.
//
// Thread safety: Count() from any thread.
class Metrics {
 public:
  // Serves from now on. `engine` is borrowed. UNAVAILABLE if `listen`, as
  // HOST:PORT, cannot be listened on.
  static absl::StatusOr<std::unique_ptr<Metrics>> Start(
      const std::string& listen, const Engine* engine);

  virtual ~Metrics() = default;

  // Counts a call that ran a request and has ended.
  virtual void Count(const CallReport& report) = 0;

  // The port that it listens on.
  virtual int port() const = 0;
};

}  // namespace flash

#endif  // SERVER_METRICS_H_
