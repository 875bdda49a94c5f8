// A few threads for what takes time: long messages, which are parsed and
// tokenised in proportion to their length, and whatever waits for the sessions'
// store. gRPC's threads and the decode thread must not be held up.

#ifndef SERVER_SERVICE_WORKERS_H_
#define SERVER_SERVICE_WORKERS_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "kernels/mutex.h"

namespace flash {

// Messages of more bytes than this belong on a worker; shorter ones take less
// than a few milliseconds where they are.
inline constexpr size_t kLongTextBytes = 64 << 10;

// Thread safety: every function may be called from any thread.
class Workers {
 public:
  // What may wait for a thread: so many tasks, of so many bytes together. One
  // task alone may wait whatever its size.
  struct Room {
    size_t tasks = 64;
    size_t bytes = 64 << 20;
    std::string when_full = "the workers are busy";  // the client is told
  };

  Workers(int num_threads, Room room);

  // Runs what is waiting, then ends the threads.
  ~Workers();

  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Has `work`, which holds `num_bytes`, run on one of the threads, soon.
  // RESOURCE_EXHAUSTED, with details, and `work` is dropped, if there is no
  // room. Never waits.
  absl::Status TryRun(size_t num_bytes, std::function<void()> work);

  // Likewise, whatever room there is: for the end of what TryRun() let begin,
  // which is thereby bounded too.
  void Run(std::function<void()> work);

 private:
  struct Task {
    size_t num_bytes = 0;
    std::function<void()> work;
  };

  void Loop();

  const Room room_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Task> waiting_ ABSL_GUARDED_BY(mutex_);
  size_t waiting_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace flash

#endif  // SERVER_SERVICE_WORKERS_H_
