// The engine: the decode thread, and the door through which requests reach it.
//
// A request's path: Submit() on any thread puts it into the queue; the decode
// thread takes it out when enough slots are free (first come, first served),
// runs it step by step, and tells its sink. All work is in Scheduler; this
// class adds the thread, and the waiting when there is nothing to do.

#ifndef SERVER_SCHEDULER_ENGINE_H_
#define SERVER_SCHEDULER_ENGINE_H_

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/mutex.h"
#include "server/model/language_model.h"
#include "server/scheduler/engine_options.h"
#include "server/scheduler/request.h"
#include "server/scheduler/request_limits.h"
#include "server/scheduler/request_queue.h"
#include "server/scheduler/scheduler.h"
#include "server/scheduler/snapshot.h"
#include "server/tokenizer/tokenizer.h"

namespace flash {

// Thread safety: every function may be called from any thread; Create() and the
// destructor from one.
class Engine {
 public:
  // Starts the decode thread. `model` and `tokenizer` are borrowed for as long
  // as the engine lives; only the decode thread steps the model, and
  // `parallel_for` is called there too (empty: one thread does everything).
  // INVALID_ARGUMENT, naming the option, if the options cannot work with this
  // model.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(
      EngineOptions options, LanguageModel* model, const Tokenizer* tokenizer,
      ParallelFor parallel_for);

  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Stops at once: requests that are not done get UNAVAILABLE.
  ~Engine();

  // Puts a request into the queue. Never waits; with prefix states it takes
  // time in proportion to the ids. If this returns OK, the
  // request's sink is called until OnDone(), perhaps before this returns.
  // Otherwise the request is dropped and its sink never called:
  //   INVALID_ARGUMENT: it can never run here; names field, value and limit.
  //   RESOURCE_EXHAUSTED: the queue is full; names the limit. Try again later.
  //   UNAVAILABLE: draining, stopped, or the device has failed. Try another
  //     server.
  absl::Status Submit(std::unique_ptr<Request> request);

  // Makes the decode thread ask the sinks again, because the answer of a sink's
  // IsCancelled() or Room() has changed. Never waits; may be called from a
  // sink and under a sink's lock.
  void Notify();

  // Asks for the text of an output as it stands between two steps: of a running
  // request, or of one that has finished and whose slot nobody has taken since
  // (finished ones lose theirs in the order in which they finished). `done` is
  // called once, on the decode thread or before this returns, and must not
  // wait:
  //   NOT_FOUND: `owner` has no such request here, or no more.
  //   FAILED_PRECONDITION: it waits in the queue or runs its prompt; or the
  //     output ended in stop text that is hidden: only Request::save keeps what
  //     it takes to go back before that.
  //   RESOURCE_EXHAUSTED: too many wait for theirs. Try again later.
  //   UNAVAILABLE: the engine has stopped.
  using SnapshotDone =
      std::function<void(absl::StatusOr<std::shared_ptr<const Snapshot>>)>;
  void TakeSnapshot(std::string owner, std::string request_id, int output_index,
                    SnapshotDone done);

  // From now on Submit() returns UNAVAILABLE. What has been submitted goes on.
  void Drain();

  // Drains, and returns when every request is done: those that are not by
  // `deadline` get UNAVAILABLE then. The decode thread has ended afterwards.
  // REQUIRES: not called on the decode thread (from a sink).
  void Stop(Clock::time_point deadline);

  // OK, or why the device failed. After a failure every request that had a slot
  // got INTERNAL, every queued one UNAVAILABLE, and the engine does nothing
  // more: the process should end, and a new one start.
  absl::Status device_status() const;

  EngineStats stats() const;

 private:
  // What TakeSnapshot() was asked.
  struct SnapshotWanted {
    std::string owner;
    std::string request_id;
    int output_index = 0;
    SnapshotDone done;
  };

  Engine(EngineOptions options, LanguageModel* model,
         const Tokenizer* tokenizer, ParallelFor parallel_for);

  // The decode thread: Turn() until it is false.
  void Loop();
  // Runs the scheduler once, and waits if there was nothing to do. False when
  // the thread has to end: stopped, or the device has failed.
  bool Turn();
  // Takes one of the snapshots that are wanted: each costs the time of a copy,
  // for which it holds up a step. True if there was one.
  bool TakeOneSnapshot();
  // Answers those that nobody will take any more.
  void RefuseSnapshots();
  // Returns when Wake() was called, at `until`, or to show that it is alive.
  void WaitForWork(Clock::time_point until);
  void Wake();
  void Publish();

  const EngineOptions options_;
  const RequestLimits limits_;
  const int chunk_size_;
  RequestQueue queue_;
  Scheduler scheduler_;  // the decode thread's own

  mutable Mutex mutex_;
  CondVar changed_;
  bool wake_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Clock::time_point> stop_at_ ABSL_GUARDED_BY(mutex_);
  EngineStats stats_ ABSL_GUARDED_BY(mutex_);
  absl::Status device_status_ ABSL_GUARDED_BY(mutex_);
  std::deque<SnapshotWanted> snapshots_wanted_ ABSL_GUARDED_BY(mutex_);
  bool loop_ended_ ABSL_GUARDED_BY(mutex_) = false;

  Mutex join_mutex_;  // two Stop() join once
  std::thread thread_ ABSL_GUARDED_BY(join_mutex_);
};

}  // namespace flash

#endif  // SERVER_SCHEDULER_ENGINE_H_
