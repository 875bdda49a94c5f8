// A few threads for long texts: tokenising takes time in proportion to the
// text, and gRPC's threads must not be held up.

#ifndef SERVER_SERVICE_TEXT_WORKERS_H_
#define SERVER_SERVICE_TEXT_WORKERS_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "kernels/mutex.h"

namespace flash {

// Texts of more bytes than this belong here; shorter ones take less than a
// millisecond where they are.
inline constexpr size_t kLongTextBytes = 64 << 10;

// Thread safety: every function may be called from any thread.
class TextWorkers {
 public:
  // At most `max_waiting` tasks wait for one of the `num_threads`.
  TextWorkers(int num_threads, size_t max_waiting);

  // Runs what is waiting, then ends the threads.
  ~TextWorkers();

  TextWorkers(const TextWorkers&) = delete;
  TextWorkers& operator=(const TextWorkers&) = delete;

  // Has `work` run on one of the threads, soon. False, and `work` is dropped,
  // if too many are waiting. Never waits.
  bool TryRun(std::function<void()> work);

 private:
  void Loop();

  const size_t max_waiting_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> waiting_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace flash

#endif  // SERVER_SERVICE_TEXT_WORKERS_H_
