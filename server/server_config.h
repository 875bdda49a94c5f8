// What the server is told at the start: its flags, read once, checked.

#ifndef SERVER_SERVER_CONFIG_H_
#define SERVER_SERVER_CONFIG_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/tensor.h"
#include "server/command_line/command_line.h"
#include "server/sessions/prefix_cache.h"
#include "server/sessions/snapshot_codec.h"

namespace flash {

// The fields have the names of the flags, whose help says what they mean. An
// unset optional is "auto".
struct ServerConfig {
  std::string model;
  std::string listen;
  std::string metrics_listen;  // empty: off
  std::string port_file;       // empty: none

  enum class Device { kAuto, kCpu, kCuda };
  Device device = Device::kAuto;
  std::optional<int> card;  // the N of cuda:N
  std::optional<DataType> weights;
  std::optional<DataType> cache;
  std::optional<int> slots;
  std::optional<int> threads;
  std::string cpu_isa;
  std::optional<int> max_step_rows;
  int max_drafted_tokens = 0;
  std::optional<std::chrono::nanoseconds> target_step_time;

  std::string session_store;  // empty: no sessions
  std::optional<int64_t> session_store_bytes;
  std::optional<int64_t> session_cache_bytes;
  std::chrono::nanoseconds session_ttl{0};
  SnapshotCompression session_compression = SnapshotCompression::kNone;
  std::optional<int64_t> prefix_cache_bytes;
  PrefixCache::Sharing prefix_cache_sharing =
      PrefixCache::Sharing::kWithinOwner;
  int64_t checkpoint_every_tokens = 0;
  std::string tenant_metadata;  // empty: everybody is one owner

  int64_t max_message_bytes = 0;
  int64_t max_prompt_tokens = 0;
  int64_t max_text_bytes = 0;
  int64_t max_tokens = 0;
  int64_t default_max_tokens = 0;
  int64_t max_queued_requests = 0;
  int64_t max_queued_tokens = 0;
  int outbox_events = 0;
  int max_streams_per_connection = 0;
  std::chrono::nanoseconds slow_reader_timeout{0};
  std::chrono::nanoseconds drain_timeout{0};
  std::chrono::nanoseconds stale_after{0};
};

// The program "flash-server" with its flags.
Program ServerProgram();

// What the flags say, once they are set. INVALID_ARGUMENT, with one sentence
// that names the flag, its value and what is accepted, if one makes no sense.
absl::StatusOr<ServerConfig> ServerConfigFromFlags();

}  // namespace flash

#endif  // SERVER_SERVER_CONFIG_H_
