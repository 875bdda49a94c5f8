// What stands beside a session's snapshot in the store: whose it is, how long
// it lives, and which request works on it.

#ifndef SERVER_SESSIONS_SESSION_HEAD_H_
#define SERVER_SESSIONS_SESSION_HEAD_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace flash {

struct SessionHead {
  std::string owner;
  // Stands for the body: random, given with every body that is written, and the
  // same for a session and its forks as long as they are the same.
  std::string snapshot;
  int64_t num_tokens = 0;
  int64_t num_pending = 0;

  int64_t epoch = 0;          // of the last claim; 0: there was none
  int64_t written_epoch = 0;  // of the claim that wrote the body
  // Claims that one request took over from itself are a chain. The first epoch
  // of the last claim's, and of the one that wrote the body (0: its answer is
  // not to be given again).
  int64_t first_epoch = 0;
  int64_t written_first_epoch = 0;
  int64_t repeated_epoch = 0;  // of the last claim that was to write it again

  absl::Time created;
  absl::Time used;
  absl::Time expires;
  absl::Duration time_to_live;
  std::string last_request;

  // The claim `epoch`, until it is committed or released. It holds the session
  // until it ends, and may be committed even then if there is no later one.
  struct Lease {
    std::string request;
    std::string server;
    absl::Time ends;
  };
  std::optional<Lease> lease;

  bool IsHeld(absl::Time now) const {
    return lease.has_value() && lease->ends > now;
  }

  // It is used, and lives for its time to live from then on: at least, from
  // when the claim on it ends.
  void Use(absl::Time now) {
    used = now;
    expires = (IsHeld(now) ? lease->ends : now) + time_to_live;
  }
};

// Times are kept to the microsecond.
std::string WriteSessionHead(const SessionHead& head);

// DATA_LOSS if `bytes` are no head.
absl::StatusOr<SessionHead> ReadSessionHead(std::string_view bytes);

}  // namespace flash

#endif  // SERVER_SESSIONS_SESSION_HEAD_H_
