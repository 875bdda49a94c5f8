#include "kernels/thread_pool.h"

#include <immintrin.h>

#include "kernels/check.h"
#include "kernels/float_mode.h"

namespace flash {
namespace {

// A ticket: loop number (24 bits), number of tasks (20), next task (20).
constexpr uint64_t kFieldMask = (uint64_t{1} << 20) - 1;

// Each thread may take one task too many at the end of a loop, and the field of
// the next task must not overflow.
constexpr int kMaxTasks = 1'000'000;

constexpr uint64_t MakeTicket(uint64_t loop, int num_tasks) {
  return loop << 40 | static_cast<uint64_t>(num_tasks) << 20;
}
constexpr int NextTask(uint64_t ticket) {
  return static_cast<int>(ticket & kFieldMask);
}
constexpr int NumTasks(uint64_t ticket) {
  return static_cast<int>(ticket >> 20 & kFieldMask);
}
constexpr uint64_t LoopNumber(uint64_t ticket) { return ticket >> 40; }

// About 50 microseconds: longer than the gap between two loops of a step,
// shorter than anybody would notice on an idle machine.
constexpr int kSpins = 2000;

}  // namespace

ThreadPool::ThreadPool(int num_threads) {
  FLASH_CHECK(num_threads >= 1 && num_threads <= 1024);
  for (int worker = 1; worker < num_threads; ++worker) {
    workers_.emplace_back([this, worker] { WorkerLoop(worker); });
  }
}

ThreadPool::~ThreadPool() {
  stopping_.store(true);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(int num_tasks, Function function, void* context) {
  FLASH_CHECK(num_tasks >= 0 && num_tasks <= kMaxTasks);
  FloatMode mode;
  if (workers_.empty() || num_tasks <= 1) {
    for (int index = 0; index < num_tasks; ++index) function(context, index, 0);
    return;
  }
  function_ = function;
  context_ = context;
  num_done_.store(0, std::memory_order_relaxed);
  const uint64_t loop = LoopNumber(ticket_.load(std::memory_order_relaxed)) + 1;
  ticket_.store(MakeTicket(loop, num_tasks), std::memory_order_release);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  TakeTasks(/*worker=*/0);
  // The rest is running already: the wait is shorter than one task.
  for (int spins = 0; num_done_.load(std::memory_order_acquire) < num_tasks;
       ++spins) {
    if (spins < kSpins) {
      _mm_pause();
    } else {
      std::this_thread::yield();  // somebody else needs this processor
    }
  }
}

void ThreadPool::TakeTasks(int worker) {
  while (true) {
    const uint64_t seen = ticket_.load(std::memory_order_acquire);
    if (NextTask(seen) >= NumTasks(seen)) return;
    const uint64_t ticket = ticket_.fetch_add(1, std::memory_order_acq_rel);
    if (NextTask(ticket) >= NumTasks(ticket)) return;
    function_(context_, NextTask(ticket), worker);
    num_done_.fetch_add(1, std::memory_order_release);
  }
}

void ThreadPool::WorkerLoop(int worker) {
  FloatMode mode;
  while (!stopping_.load()) {
    const uint64_t seen = ticket_.load(std::memory_order_acquire);
    if (NextTask(seen) < NumTasks(seen)) {
      TakeTasks(worker);
    } else {
      WaitForTicket(seen);
    }
  }
}

void ThreadPool::WaitForTicket(uint64_t seen) {
  for (int spins = 0; spins < kSpins; ++spins) {
    if (ticket_.load(std::memory_order_acquire) != seen) return;
    _mm_pause();
  }
  const int epoch = epoch_.load();
  // A loop that began before `epoch` was read is seen here; one that begins
  // later changes epoch_, and the wait returns.
  if (stopping_.load() || ticket_.load() != seen) return;
  epoch_.wait(epoch);
}

}  // namespace flash
