// A thread of its own for what has to be done now and then.

#ifndef SERVER_SESSIONS_REPEATED_WORK_H_
#define SERVER_SESSIONS_REPEATED_WORK_H_

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "kernels/mutex.h"

namespace flash {

// Calls `work` every `period`, on one thread, until it is destroyed, which
// waits for a call that has begun. The first comes after one period.
class RepeatedWork {
 public:
  RepeatedWork(absl::Duration period, std::function<void()> work);
  ~RepeatedWork();
  RepeatedWork(const RepeatedWork&) = delete;
  RepeatedWork& operator=(const RepeatedWork&) = delete;

 private:
  void Repeat();

  const absl::Duration period_;
  const std::function<void()> work_;
  Mutex mutex_;
  CondVar stopped_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace flash

#endif  // SERVER_SESSIONS_REPEATED_WORK_H_
