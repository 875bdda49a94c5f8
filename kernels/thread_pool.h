// A fixed team of threads that divides loops among itself.

#ifndef KERNELS_THREAD_POOL_H_
#define KERNELS_THREAD_POOL_H_

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace flash {

// ParallelFor() runs a loop's tasks on the calling thread and the team. Threads
// that have nothing to do spin for a moment, since the next loop of a step is
// microseconds away, and then sleep: an idle pool uses no processor.
//
// Every task runs in the mode of float_mode.h.
//
// Thread safety: one thread calls ParallelFor() at a time. Tasks must not call
// it.
class ThreadPool {
 public:
  // `num_threads` counts the caller. REQUIRES: 1 <= num_threads <= 1024.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();

  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls task(index, worker) for each index in [0, num_tasks), in any order
  // and on any thread, and returns when all have returned. `worker` is in
  // [0, num_threads()), and no two tasks that run at once have the same one.
  // REQUIRES: num_tasks <= 1,000,000.
  template <typename Task>
  void ParallelFor(int num_tasks, Task&& task) {
    using T = std::remove_reference_t<Task>;
    Run(
        num_tasks,
        [](void* context, int index, int worker) {
          (*static_cast<T*>(context))(index, worker);
        },
        const_cast<void*>(static_cast<const void*>(&task)));
  }

 private:
  using Function = void (*)(void* context, int index, int worker);

  void Run(int num_tasks, Function function, void* context);
  void WorkerLoop(int worker);
  // Runs tasks of the current loop until none is left to take.
  void TakeTasks(int worker);
  // Returns once the ticket is no longer `seen`, or earlier.
  void WaitForTicket(uint64_t seen);

  // Which loop this is, how many tasks it has and which is to be taken next, in
  // one word: whoever takes a task knows by the same operation that its loop
  // cannot end, so function_ and context_ are of that loop.
  std::atomic<uint64_t> ticket_{0};
  Function function_ = nullptr;
  void* context_ = nullptr;
  std::atomic<int> num_done_{0};

  std::atomic<int> epoch_{0};  // changes with each loop; sleepers wait on it
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
};

}  // namespace flash

#endif  // KERNELS_THREAD_POOL_H_
