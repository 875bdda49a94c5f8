// What the service knows and tells about the model and the server behind it.
// Filled once at the start, by whoever builds them.

#ifndef SERVER_SERVICE_FACTS_H_
#define SERVER_SERVICE_FACTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace flash {

// As ModelInfo of control.proto, which says what the fields mean.
struct ModelFacts {
  std::string name;
  std::string architecture = "flash";
  int64_t num_parameters = 0;
  int32_t vocab_size = 0;
  int32_t num_pieces = 0;  // at most vocab_size
  int64_t hidden_size = 0;
  int64_t expanded_size = 0;
  int64_t query_key_size = 0;
  int64_t num_layers = 0;
  int64_t chunk_size = 0;
  std::optional<int64_t> max_length;
  std::optional<int64_t> trained_length;
  std::optional<int32_t> bos_token_id;
  std::vector<int32_t> eos_token_ids;
  bool has_text = false;
  std::string tokenizer;
  int64_t state_bytes = 0;
};

// As ServerInfo of control.proto.
struct ServerFacts {
  std::string version;
  std::string device;
  std::string device_name;
  std::string instruction_set;
  int32_t num_threads = 0;
  std::string weights_type;
  std::string cache_type;
  std::string numerics;
  int32_t num_slots = 0;
  int32_t max_step_rows = 0;
  std::string session_store;  // empty: there are no sessions
  int64_t session_seconds = 0;
  int64_t prefix_cache_bytes = 0;
  int64_t checkpoint_every_tokens = 0;
  // Bytes of memory by what they are for.
  std::vector<std::pair<std::string, int64_t>> memory;
};

}  // namespace flash

#endif  // SERVER_SERVICE_FACTS_H_
