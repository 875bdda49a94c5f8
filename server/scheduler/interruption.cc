#include "server/scheduler/interruption.h"

#include <algorithm>

namespace flash {
namespace {

Clock::time_point TimeLimit(const QueuedRequest& queued) {
  const auto& limit = queued.request->stopping.time_limit;
  return limit.has_value() ? Later(queued.submitted, *limit)
                           : Clock::time_point::max();
}

}  // namespace

absl::Status Interruption(const Request& request, Clock::time_point now) {
  // The deadline first: gRPC cancels a call whose deadline has passed.
  if (request.deadline.has_value() && *request.deadline <= now) {
    return absl::DeadlineExceededError("the deadline passed");
  }
  if (request.sink->IsCancelled()) {
    return absl::CancelledError("the client cancelled");
  }
  return absl::OkStatus();
}

bool TimeLimitReached(const QueuedRequest& queued, Clock::time_point now) {
  return TimeLimit(queued) <= now;
}

Clock::time_point NextInterruption(const QueuedRequest& queued) {
  return std::min(TimeLimit(queued),
                  queued.request->deadline.value_or(Clock::time_point::max()));
}

Clock::time_point Later(Clock::time_point time, Clock::duration duration) {
  // Time points may be negative, so compare without a sum that overflows.
  if (time > Clock::time_point::max() - std::max(duration, {})) {
    return Clock::time_point::max();
  }
  return time + duration;
}

}  // namespace flash
