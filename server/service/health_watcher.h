// What health checks are told of the engine, kept up to date.

#ifndef SERVER_SERVICE_HEALTH_WATCHER_H_
#define SERVER_SERVICE_HEALTH_WATCHER_H_

#include <functional>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "kernels/mutex.h"
#include "server/scheduler/engine.h"

namespace flash {

// A thread that asks ten times a second whether requests can be served: the
// device works, the decode loop comes round, nobody has begun to drain.
//
// Thread safety: every function may be called from any thread.
class HealthWatcher {
 public:
  enum class Health { kServing, kNotServing };
  using Report = std::function<void(Health)>;

  // `report` is called with the first answer before this returns, and then on
  // each change. `engine` is borrowed.
  HealthWatcher(const Engine* engine, Clock::duration stale_after,
                Report report);
  ~HealthWatcher();

  HealthWatcher(const HealthWatcher&) = delete;
  HealthWatcher& operator=(const HealthWatcher&) = delete;

  // The answer is kNotServing from now on, whatever the engine does.
  void Leave();

 private:
  void Loop();
  Health Ask() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Update() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Engine& engine_;
  const Clock::duration stale_after_;
  const Report report_;

  Mutex mutex_;
  CondVar changed_;
  bool left_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Health> told_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace flash

#endif  // SERVER_SERVICE_HEALTH_WATCHER_H_
