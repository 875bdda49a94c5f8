// Runs the threads of a grid, block after block.

#ifndef TESTS_CUDA_EMULATOR_GRID_H_
#define TESTS_CUDA_EMULATOR_GRID_H_

#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/cuda_emulator/emulator.h"
#include "tests/cuda_emulator/fiber.h"

namespace cuda_emulator {

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kMaxBlockThreads = 1024;
inline constexpr size_t kMaxParameterBytes = 4096;

// A moment: the number of barriers, of whatever kind, that were passed before.
using Moment = uint32_t;

// One thread of the block that runs.
struct Thread {
  enum class State { kReady, kAtBlockBarrier, kInWarpCall, kDone };

  int number = 0;  // within the block
  uint3 index = {};
  State state = State::kReady;
  Fiber* fiber = nullptr;

  // What it waits for.
  Place place;
  WarpCall call = WarpCall::kSync;
  unsigned mask = 0;
  uint64_t value = 0;
  int from = 0;

  uint64_t result = 0;

  // Its last __syncwarp(), and with whom.
  Moment synced = 0;
  unsigned synced_with = 0;

  int warp() const { return number / kWarpSize; }
  int lane() const { return number % kWarpSize; }
};

// A thread among all of the grid, for those who keep track of memory.
using ThreadId = uint32_t;

// Thread safety: one host thread at a time.
class Grid {
 public:
  // Calls the kernel once for each thread. False if a report ended it.
  bool Run(dim3 grid, dim3 block, const KernelCall& kernel, Order order,
           uint64_t seed);

  // The grid that runs, or null.
  static Grid* Running() { return running_; }

  // The calls of the running thread.
  Thread& thread() { return *current_; }
  void SyncBlock(const Place& place);
  uint64_t CallWarp(WarpCall call, unsigned mask, uint64_t value, int from,
                    const Place& place);
  // Reports what the running thread did, if it is the first such thing. The
  // thread is to GiveUp() when it holds nothing any more: its stack is not
  // unwound.
  void Fail(const std::string& what);
  bool failed() const { return failed_; }
  [[noreturn]] void GiveUp();

  ThreadId thread_id() const {
    return block_number_ * num_threads_ + current_->number;
  }
  uint32_t BlockOf(ThreadId id) const { return id / num_threads_; }
  int WarpOf(ThreadId id) const { return id % num_threads_ / kWarpSize; }
  int LaneOf(ThreadId id) const { return id % num_threads_ % kWarpSize; }
  uint32_t block_number() const { return block_number_; }
  Moment now() const { return now_; }
  Moment launched() const { return launched_; }
  Moment block_began() const { return block_began_; }
  Moment block_synced() const { return block_synced_; }

 private:
  static void FiberLoop();

  void RunBlock();
  void Resume(Thread& thread);
  void Wait(Thread::State state);
  // Lets waiting threads go on, or reports why they cannot.
  void PassBarrier();
  void TryWarpCall(Thread& last);
  void FinishWarpCall(Thread& thread, unsigned mask);
  void Report(const std::string& what);
  std::string Describe(const Thread& thread) const;
  std::vector<uint32_t> Permutation(uint32_t size);

  static Grid* running_;

  dim3 block_size_;
  uint32_t block_number_ = 0;
  uint32_t num_threads_ = 0;
  const KernelCall* kernel_ = nullptr;
  Order order_ = Order::kShuffled;
  std::mt19937 random_;

  std::vector<Thread> threads_;
  Thread* current_ = nullptr;
  bool failed_ = false;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;

  Moment now_ = 1;
  Moment launched_ = 0;
  Moment block_began_ = 0;
  Moment block_synced_ = 0;
};

// Takes a report: keeps it, or says it and ends the process.
void TakeReport(const std::string& report);

}  // namespace cuda_emulator

#endif  // TESTS_CUDA_EMULATOR_GRID_H_
