// Lines to somewhere that may be slow, as a terminal or a pipe.

#ifndef SERVER_LINE_WRITER_H_
#define SERVER_LINE_WRITER_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "kernels/mutex.h"

namespace flash {

// Writes on a thread of its own, so that nobody has to wait for whoever reads.
//
// Thread safety: every function may be called from any thread.
class LineWriter {
 public:
  // `write` gets one line at a time, its end included, and may wait. At most
  // `max_waiting` lines wait for it.
  LineWriter(size_t max_waiting, std::function<void(const std::string&)> write);

  // Writes what is waiting, then ends the thread.
  ~LineWriter();

  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  // Never waits: drops `line` if too many are waiting. How many were dropped is
  // written as a line of its own when there is room again.
  void TryWrite(std::string line);

  // Returns true when `line`, and all before it, are written; false if they are
  // not after `patience`: the line stays where it is.
  bool Write(std::string line, std::chrono::milliseconds patience);

 private:
  void Loop();

  const size_t max_waiting_;
  const std::function<void(const std::string&)> write_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::string> waiting_ ABSL_GUARDED_BY(mutex_);
  int64_t num_taken_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t num_written_ ABSL_GUARDED_BY(mutex_) = 0;  // of num_taken_
  int64_t num_dropped_ ABSL_GUARDED_BY(mutex_) = 0;  // and not told yet
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace flash

#endif  // SERVER_LINE_WRITER_H_
