// What one request may ask for. Told to clients by Control.GetServerInfo; more
// is refused with INVALID_ARGUMENT, naming field, value and limit.

#ifndef SERVER_SERVICE_LIMITS_H_
#define SERVER_SERVICE_LIMITS_H_

#include <cstdint>

#include "server/sessions/session_limits.h"

namespace flash {

struct ServiceLimits {
  int64_t max_prompt_tokens = int64_t{1} << 20;
  // A tokenizer takes some 200 bytes of memory for each byte of a text.
  int64_t max_text_bytes = int64_t{4} << 20;
  int64_t max_tokens = int64_t{1} << 20;  // of each output
  int64_t default_max_tokens = 1024;      // where a request does not say
  int32_t max_outputs = 16;
  int32_t max_stop_strings = 16;
  int32_t max_stop_string_bytes = 256;
  int32_t max_stop_token_ids = 64;
  int32_t max_logprobs = 20;
  // Of (1 + prompt_logprobs) x prompt tokens: their answer is kept in memory
  // until the prompt has run.
  int64_t max_prompt_candidates = int64_t{1} << 20;
  // Of (1 + logprobs) x max_tokens x num_outputs in a unary call, likewise.
  int64_t max_unary_candidates = int64_t{1} << 20;
  int32_t max_logit_bias_entries = 1024;
  float max_logit_bias = 100;  // and its negative
  int32_t max_allowed_token_ids = 65536;
  int32_t max_request_id_bytes = 128;
  int64_t max_time_limit_ms = 86'400'000;
  // Of the requests of Sessions. The last is more than any session of the model
  // has; whoever builds the server knows.
  int32_t max_forks = kMaxForks;
  int32_t max_page_size = 1000;
  int64_t max_time_to_live_seconds = kMaxTimeToLiveSeconds;
  int64_t max_import_bytes = int64_t{64} << 20;
  int64_t max_message_bytes = int64_t{16} << 20;  // gRPC refuses more
};

}  // namespace flash

#endif  // SERVER_SERVICE_LIMITS_H_
