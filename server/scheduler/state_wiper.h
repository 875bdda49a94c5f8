// A thread that drops states for the decode thread.

#ifndef SERVER_SCHEDULER_STATE_WIPER_H_
#define SERVER_SCHEDULER_STATE_WIPER_H_

#include <deque>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "kernels/mutex.h"

namespace flash {

// A state that nobody holds any more is wiped (state_bytes.h), which takes as
// long as writing it once: a step need not wait for that.
//
// Thread safety: every function may be called from any thread.
class StateWiper {
 public:
  // States that may wait here. One more is wiped by whoever brings it: so they
  // are a bounded part of memory.
  static constexpr size_t kMaxWaiting = 4;
  // And one is being wiped.
  static constexpr size_t kMaxStates = kMaxWaiting + 1;

  StateWiper();
  // Wipes what waits.
  ~StateWiper();
  StateWiper(const StateWiper&) = delete;
  StateWiper& operator=(const StateWiper&) = delete;

  // Drops `state`: a state, or a snapshot with one; null: nothing is done.
  void Drop(std::shared_ptr<const void> state);

 private:
  void Loop();

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::shared_ptr<const void>> waiting_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace flash

#endif  // SERVER_SCHEDULER_STATE_WIPER_H_
