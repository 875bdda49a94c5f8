// The end of a call whose client does not read: gRPC has no other way to end
// one whose last bytes wait for their reader.

#ifndef SERVER_SERVICE_LINGER_H_
#define SERVER_SERVICE_LINGER_H_

#include <grpcpp/alarm.h>
#include <grpcpp/server_context.h>

#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "kernels/mutex.h"
#include "server/scheduler/request.h"

namespace flash {

// Thread safety: every function may be called from any thread.
// Lifetime: shared by the call and by the alarm that is set; after Stop() the
// context is not used.
class Linger : public std::enable_shared_from_this<Linger> {
 public:
  // Cancels the call of `context` when the client reads nothing for `patience`.
  Linger(grpc::CallbackServerContext* context, Clock::duration patience)
      : context_(context), patience_(patience) {}

  Linger(const Linger&) = delete;
  Linger& operator=(const Linger&) = delete;

  // Waits for the client from now on: nothing goes on before it has read what
  // is on the way to it. May be called again.
  void Start();

  // Waits no more, until Start() is called again.
  void Pause();

  // The client read something.
  void OnProgress();

  // The call is over.
  void Stop();

 private:
  void SetAlarm() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnAlarm(int64_t progress_then);

  grpc::CallbackServerContext* const context_;
  const Clock::duration patience_;
  Mutex mutex_;
  int64_t progress_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace flash

#endif  // SERVER_SERVICE_LINGER_H_
