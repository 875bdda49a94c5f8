// What Prometheus is told: the counts of the server's parts, read when it asks.

#ifndef SERVER_METRICS_H_
#define SERVER_METRICS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/scheduler/engine_options.h"
#include "server/service/call.h"
#include "server/sessions/checkpoint_keeper.h"
#include "server/sessions/prefix_cache.h"
#include "server/sessions/sessions.h"

namespace flash {

// Where the counts come from. Each is called on a thread of the HTTP server,
// and may be empty: this server has no such part.
struct MetricsSources {
  // Bytes of memory by what they are for, which do not change.
  std::vector<std::pair<std::string, int64_t>> memory;
  std::function<EngineStats()> engine;
  std::function<PrefixCache::Stats()> prefix_cache;
  std::function<Sessions::Stats()> sessions;
  std::function<int64_t()> store;  // BlobStore::num_damaged()
  std::function<CheckpointKeeper::Stats()> checkpoints;
};

// An HTTP server with /metrics.
//
// Thread safety: Count() from any thread.
class Metrics {
 public:
  // Serves from now on. UNAVAILABLE if `listen`, as HOST:PORT, cannot be
  // listened on.
  static absl::StatusOr<std::unique_ptr<Metrics>> Start(
      const std::string& listen, MetricsSources sources);

  virtual ~Metrics() = default;

  // Counts a call that ran a request and has ended.
  virtual void Count(const CallReport& report) = 0;

  // The port that it listens on.
  virtual int port() const = 0;
};

}  // namespace flash

#endif  // SERVER_METRICS_H_
