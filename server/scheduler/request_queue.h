// Where submitted requests wait for slots: first come, first served, bounded.

#ifndef SERVER_SCHEDULER_REQUEST_QUEUE_H_
#define SERVER_SCHEDULER_REQUEST_QUEUE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "kernels/mutex.h"
#include "server/scheduler/prefix_states.h"
#include "server/scheduler/request.h"

namespace flash {

struct QueuedRequest {
  std::unique_ptr<Request> request;
  std::vector<PrefixKey> prefix_keys;  // PrefixKeysOf(); empty: none
  Clock::time_point submitted;
};

// The ids that a request brings: its prompt, its prior ids, and those that what
// it goes on from left pending.
int64_t NumTokens(const Request& request);

// A queue is open until Close(), and then never again. Every function returns
// at once. It calls no sink but through the predicates it is given, which run
// under its lock and so must not call the queue.
//
// Thread safety: every function may be called from any thread.
class RequestQueue {
 public:
  using Predicate = std::function<bool(const QueuedRequest&)>;

  // At most `max_requests` requests and `max_tokens` ids wait at a time.
  RequestQueue(int64_t max_requests, int64_t max_tokens);

  RequestQueue(const RequestQueue&) = delete;
  RequestQueue& operator=(const RequestQueue&) = delete;

  // Puts `request` at the end. Ownership of `request` is taken if and only if
  // this returns OK; otherwise it is left as it was.
  //   RESOURCE_EXHAUSTED: the queue is full; names the limit. The client may
  //     try again later.
  //   What Close() was given, after that.
  absl::Status Push(std::unique_ptr<Request>& request, Clock::time_point now,
                    std::vector<PrefixKey> prefix_keys = {});

  // Takes the first request, if there is one and `fits` says so. Nothing is
  // ever taken from behind it: a request that needs many slots is not overtaken
  // by smaller ones for ever.
  std::optional<QueuedRequest> PopIf(const Predicate& fits);

  // Takes every request for which `leaves` is true, in order.
  std::vector<QueuedRequest> RemoveIf(const Predicate& leaves);

  // From now on Push() returns `reason`, which is not OK. What is in the queue
  // stays. The first call decides.
  void Close(absl::Status reason);

  // Calls `visit` with every request, in order, under the lock.
  void ForEach(const std::function<void(const QueuedRequest&)>& visit) const;

  int64_t num_requests() const;
  int64_t num_tokens() const;
  bool closed() const;

 private:
  const int64_t max_requests_;
  const int64_t max_tokens_;

  mutable Mutex mutex_;
  std::deque<QueuedRequest> requests_ ABSL_GUARDED_BY(mutex_);
  int64_t num_tokens_ ABSL_GUARDED_BY(mutex_) = 0;  // of requests_
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);     // OK while it is open
};

}  // namespace flash

#endif  // SERVER_SCHEDULER_REQUEST_QUEUE_H_
