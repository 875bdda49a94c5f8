// How many sessions each owner has, about: enough to keep a limit.

#ifndef SERVER_SESSIONS_SESSION_COUNTS_H_
#define SERVER_SESSIONS_SESSION_COUNTS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/mutex.h"

namespace flash {

// The store is asked now and then, and this server's own changes are counted
// in between: what other servers make, and what expires, is known late.
//
// Thread safety: every function may be called from any thread.
class SessionCounts {
 public:
  explicit SessionCounts(int64_t most) : most_(most) {}

  // Counts `added` more. RESOURCE_EXHAUSTED if that is too many: then none is
  // counted. `count` asks the store, and its error is returned.
  absl::Status Add(const std::string& owner, int64_t added, absl::Time now,
                   const std::function<absl::StatusOr<int64_t>()>& count);
  void Remove(const std::string& owner, int64_t removed);

 private:
  struct Count {
    int64_t sessions = 0;
    absl::Time as_of;  // when the store was asked
  };

  const int64_t most_;

  Mutex mutex_;
  std::unordered_map<std::string, Count> counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace flash

#endif  // SERVER_SESSIONS_SESSION_COUNTS_H_
