// The end of a call whose client does nothing: gRPC has no other way to end one
// whose last bytes wait for their reader.

#ifndef SERVER_SERVICE_LINGER_H_
#define SERVER_SERVICE_LINGER_H_

#include <grpcpp/alarm.h>
#include <grpcpp/server_context.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "kernels/mutex.h"
#include "server/scheduler/request.h"

namespace flash {

// Thread safety: every function may be called from any thread.
// Lifetime: shared by the call and by the alarm that is set; after Stop()
// neither the context is used nor `on_idle` called.
class Linger : public std::enable_shared_from_this<Linger> {
 public:
  // Cancels the call of `context` when the client reads nothing for `patience`.
  Linger(grpc::CallbackServerContext* context, Clock::duration patience)
      : Linger([context] { context->TryCancel(); }, patience) {}
  // Calls `on_idle` instead, once. It must not wait, nor call this object.
  Linger(std::function<void()> on_idle, Clock::duration patience)
      : on_idle_(std::move(on_idle)), patience_(patience) {}

  Linger(const Linger&) = delete;
  Linger& operator=(const Linger&) = delete;

  // Waits for the client from now on: nothing goes on before it has read what
  // is on the way to it. May be called again.
  void Start();

  // Waits no more, until Start() is called again.
  void Pause();

  // The client read something, or sent it.
  void OnProgress();

  // The call is over.
  void Stop();

 private:
  void SetAlarm() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnAlarm(int64_t progress_then);

  const std::function<void()> on_idle_;
  const Clock::duration patience_;
  Mutex mutex_;
  int64_t progress_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace flash

#endif  // SERVER_SERVICE_LINGER_H_
