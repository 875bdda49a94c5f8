// A connection between client and server that can be made to fail.

#ifndef TESTS_END_TO_END_RELAY_H_
#define TESTS_END_TO_END_RELAY_H_

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "kernels/mutex.h"

namespace flash {

// Takes connections on a port of its own and passes their bytes on to `target`
// (HOST:PORT) and back.
//
// Thread safety: every function may be called from any thread.
class Relay {
 public:
  explicit Relay(const std::string& target);
  ~Relay();

  const std::string& address() const { return address_; }

  // From now on what comes back from the target is taken, and goes nowhere.
  void Swallow() { swallows_.store(true); }
  // Closes every connection, and takes no more.
  void Cut();

 private:
  void Accept();
  void Pass(int from, int to, const std::atomic<bool>* swallows);

  const std::string target_;
  int listener_ = -1;
  std::string address_;
  std::atomic<bool> swallows_{false};

  Mutex mutex_;
  bool cut_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<int> sockets_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> passing_ ABSL_GUARDED_BY(mutex_);
  std::thread accepting_;
};

}  // namespace flash

#endif  // TESTS_END_TO_END_RELAY_H_
