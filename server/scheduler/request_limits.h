// Which requests an engine can ever run.

#ifndef SERVER_SCHEDULER_REQUEST_LIMITS_H_
#define SERVER_SCHEDULER_REQUEST_LIMITS_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "server/scheduler/request.h"

namespace flash {

struct RequestLimits {
  int num_slots = 0;   // outputs
  int vocab_size = 0;  // every id is below it
  std::optional<int64_t> max_length;
  int64_t max_prompt_logprobs = 0;
  int64_t max_queued_tokens = 0;
};

// OK if `request` can run once enough slots are free; INVALID_ARGUMENT, naming
// field, value and limit, if it never can. It is about what the scheduler
// relies on; what the numbers of SamplingOptions may be is the service's
// matter.
absl::Status CheckRequest(const Request& request, const RequestLimits& limits);

}  // namespace flash

#endif  // SERVER_SCHEDULER_REQUEST_LIMITS_H_
