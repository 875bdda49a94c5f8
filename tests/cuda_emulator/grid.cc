#include "tests/cuda_emulator/grid.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <utility>

#include "kernels/check.h"
#include "tests/cuda_emulator/memory.h"

uint3 threadIdx, blockIdx, blockDim, gridDim;

namespace cuda_emulator {

Grid* Grid::running_ = nullptr;

namespace {

bool SamePlace(const Place& a, const Place& b) {
  return a.line() == b.line() && std::strcmp(a.file_name(), b.file_name()) == 0;
}

std::string PlaceText(const Place& place) {
  return std::string(place.file_name()) + ":" + std::to_string(place.line());
}

std::string IndexText(const uint3& index) {
  return "(" + std::to_string(index.x) + ", " + std::to_string(index.y) + ", " +
         std::to_string(index.z) + ")";
}

uint3 Unflatten(uint32_t number, const dim3& size) {
  return {number % size.x, number / size.x % size.y, number / size.x / size.y};
}

}  // namespace

bool Grid::Run(dim3 grid, dim3 block, const KernelCall& kernel, Order order,
               uint64_t seed) {
  FLASH_CHECK(running_ == nullptr);
  block_size_ = block;
  num_threads_ = block.x * block.y * block.z;
  gridDim = {grid.x, grid.y, grid.z};
  blockDim = {block.x, block.y, block.z};
  kernel_ = &kernel;
  order_ = order;
  random_.seed(static_cast<uint32_t>(seed));
  failed_ = false;
  launched_ = ++now_;
  running_ = this;
  for (const uint32_t number : Permutation(grid.x * grid.y * grid.z)) {
    block_number_ = number;
    blockIdx = Unflatten(number, grid);
    RunBlock();
    if (failed_) break;
  }
  running_ = nullptr;
  return !failed_;
}

void Grid::RunBlock() {
  PoisonSharedMemory();
  block_began_ = block_synced_ = ++now_;
  threads_.assign(num_threads_, Thread());
  for (uint32_t n = 0; n < num_threads_; ++n) {
    threads_[n].number = static_cast<int>(n);
    threads_[n].index = Unflatten(n, block_size_);
  }
  const std::vector<uint32_t> order = Permutation(num_threads_);
  for (uint32_t done = 0; done < num_threads_ && !failed_;) {
    bool ran = false;
    for (const uint32_t n : order) {
      Thread& thread = threads_[n];
      if (thread.state != Thread::State::kReady) continue;
      Resume(thread);
      ran = true;
      if (failed_) break;
      done += thread.state == Thread::State::kDone;
    }
    if (!ran) PassBarrier();
  }
  if (!failed_) return;
  // Those who still wait never go on.
  for (Thread& thread : threads_) {
    if (thread.fiber == nullptr) continue;
    thread.fiber->Restart();
    idle_.push_back(thread.fiber);
  }
}

void Grid::Resume(Thread& thread) {
  if (thread.fiber == nullptr) {
    if (idle_.empty()) {
      fibers_.push_back(std::make_unique<Fiber>(&FiberLoop));
      idle_.push_back(fibers_.back().get());
    }
    thread.fiber = idle_.back();
    idle_.pop_back();
  }
  current_ = &thread;
  threadIdx = thread.index;
  thread.fiber->Enter();
  current_ = nullptr;
  if (thread.state == Thread::State::kDone) {
    idle_.push_back(thread.fiber);
    thread.fiber = nullptr;
  }
}

// Without AddressSanitizer, which would move the parameters off the stack.
[[gnu::no_sanitize("address")]] void Grid::FiberLoop() {
  for (;;) {
    Grid* grid = running_;
    const KernelCall& kernel = *grid->kernel_;
    alignas(16) std::byte parameters[kMaxParameterBytes];
    std::memcpy(parameters, kernel.parameters, kernel.bytes);
    kernel.call(parameters);
    grid->Wait(Thread::State::kDone);
  }
}

void Grid::Wait(Thread::State state) {
  current_->state = state;
  current_->fiber->Leave();
}

void Grid::SyncBlock(const Place& place) {
  current_->place = place;
  Wait(Thread::State::kAtBlockBarrier);
}

void Grid::PassBarrier() {
  const Thread* first = nullptr;
  for (const Thread& thread : threads_) {
    if (thread.state != Thread::State::kDone) first = &thread;
  }
  for (const Thread& thread : threads_) {
    if (thread.state == Thread::State::kInWarpCall) {
      return Report(Describe(thread) + " waits for lanes that do not come");
    }
    if (thread.state == Thread::State::kDone) {
      return Report(Describe(*first) + " waits for " + Describe(thread) +
                    ", which has ended");
    }
    if (!SamePlace(thread.place, first->place)) {
      return Report("__syncthreads() is divided: " + Describe(thread) + ", " +
                    Describe(*first));
    }
  }
  ++now_;
  block_synced_ = now_;
  for (Thread& thread : threads_) thread.state = Thread::State::kReady;
}

uint64_t Grid::CallWarp(WarpCall call, unsigned mask, uint64_t value, int from,
                        const Place& place) {
  Thread& thread = *current_;
  thread.call = call;
  thread.mask = mask;
  thread.value = value;
  thread.from = from;
  thread.place = place;
  if ((mask >> thread.lane() & 1) == 0) Fail("is not in its own mask");
  thread.state = Thread::State::kInWarpCall;
  TryWarpCall(thread);
  if (failed_) GiveUp();
  if (thread.state == Thread::State::kInWarpCall) {
    thread.fiber->Leave();
  }
  return thread.result;
}

void Grid::TryWarpCall(Thread& last) {
  Thread* warp = &threads_[last.warp() * kWarpSize];
  const int lanes = std::min<int>(
      kWarpSize, static_cast<int>(num_threads_) - last.warp() * kWarpSize);
  if (lanes < kWarpSize && last.mask >> lanes != 0 &&
      last.mask != 0xffffffffu) {
    return Fail("names lanes that are not there");
  }
  const unsigned there = lanes == kWarpSize ? 0xffffffffu : (1u << lanes) - 1;
  const unsigned mask = last.mask & there;
  for (int lane = 0; lane < lanes; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    const Thread& other = warp[lane];
    if (other.state == Thread::State::kDone) {
      return Fail("waits for lane " + std::to_string(lane) +
                  ", which has ended");
    }
    if (other.state != Thread::State::kInWarpCall) return;
    if (other.call != last.call || other.mask != last.mask ||
        !SamePlace(other.place, last.place)) {
      return Fail("meets another call of " + Describe(other));
    }
  }
  if (last.call == WarpCall::kSync) ++now_;
  for (int lane = 0; lane < lanes; ++lane) {
    if (mask >> lane & 1) FinishWarpCall(warp[lane], mask);
  }
}

void Grid::FinishWarpCall(Thread& thread, unsigned mask) {
  const Thread* warp = &threads_[thread.warp() * kWarpSize];
  switch (thread.call) {
    case WarpCall::kSync:
      thread.synced = now_;
      thread.synced_with = mask;
      break;
    case WarpCall::kShuffle:
      if ((mask >> thread.from & 1) == 0) {
        return Fail("reads lane " + std::to_string(thread.from) +
                    ", which is not in the mask");
      }
      thread.result = warp[thread.from].value;
      break;
    case WarpCall::kBallot:
      thread.result = 0;
      for (int lane = 0; lane < kWarpSize; ++lane) {
        if (mask >> lane & 1) thread.result |= warp[lane].value << lane;
      }
      break;
  }
  thread.state = Thread::State::kReady;
}

void Grid::Fail(const std::string& what) {
  if (!failed_) Report(Describe(*current_) + " " + what);
}

void Grid::GiveUp() {
  for (;;) current_->fiber->Leave();
}

void Grid::Report(const std::string& what) {
  failed_ = true;
  TakeReport(what);
}

std::string Grid::Describe(const Thread& thread) const {
  std::string text =
      "thread " + IndexText(thread.index) + " of block " + IndexText(blockIdx);
  if (thread.state != Thread::State::kReady &&
      thread.state != Thread::State::kDone) {
    text += " at " + PlaceText(thread.place);
  }
  return text;
}

std::vector<uint32_t> Grid::Permutation(uint32_t size) {
  std::vector<uint32_t> order(size);
  std::iota(order.begin(), order.end(), 0);
  switch (order_) {
    case Order::kAscending:
      break;
    case Order::kDescending:
      std::reverse(order.begin(), order.end());
      break;
    case Order::kShuffled:
      std::shuffle(order.begin(), order.end(), random_);
      break;
  }
  return order;
}

int Lane() { return Grid::Running()->thread().lane(); }

void SyncBlock(const Place& place) { Grid::Running()->SyncBlock(place); }
uint64_t CallWarp(WarpCall call, unsigned mask, uint64_t value, int from,
                  const Place& place) {
  return Grid::Running()->CallWarp(call, mask, value, from, place);
}

}  // namespace cuda_emulator
