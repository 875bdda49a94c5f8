// So much of something, which calls have shares of for as long as they take.

#ifndef SERVER_SERVICE_BUDGET_H_
#define SERVER_SERVICE_BUDGET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "kernels/mutex.h"

namespace flash {

// Thread safety: every function may be called from any thread. Outlives its
// shares.
class Budget {
 public:
  using Share = std::shared_ptr<void>;  // given back when dropped

  // `when_full`: what the client is told then.
  Budget(int64_t most, std::string when_full)
      : most_(most), when_full_(std::move(when_full)) {}

  // RESOURCE_EXHAUSTED, with details, if less is left; but whoever is alone
  // gets any amount.
  absl::StatusOr<Share> Take(int64_t amount);

 private:
  const int64_t most_;
  const std::string when_full_;
  Mutex mutex_;
  int64_t taken_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace flash

#endif  // SERVER_SERVICE_BUDGET_H_
