// What ends a request before it is done: its client, and the time.

#ifndef SERVER_SCHEDULER_INTERRUPTION_H_
#define SERVER_SCHEDULER_INTERRUPTION_H_

#include "absl/status/status.h"
#include "server/scheduler/request.h"
#include "server/scheduler/request_queue.h"

namespace flash {

// OK if the request may go on; DEADLINE_EXCEEDED or CANCELLED if not.
absl::Status Interruption(const Request& request, Clock::time_point now);

// Whether the request has to finish with what it has.
bool TimeLimitReached(const QueuedRequest& queued, Clock::time_point now);

// When one of the above changes although nobody says so; Clock's last time
// point if never.
Clock::time_point NextInterruption(const QueuedRequest& queued);

// `time` + `duration`, or Clock's last time point if that is earlier.
Clock::time_point Later(Clock::time_point time, Clock::duration duration);

}  // namespace flash

#endif  // SERVER_SCHEDULER_INTERRUPTION_H_
