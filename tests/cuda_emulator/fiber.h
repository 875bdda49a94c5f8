// A stack of its own on which a function runs until it switches back.

#ifndef TESTS_CUDA_EMULATOR_FIBER_H_
#define TESTS_CUDA_EMULATOR_FIBER_H_

#include <cstddef>
#include <cstdint>

namespace cuda_emulator {

// Thread safety: used by one host thread at a time.
class Fiber {
 public:
  // `entry` never returns: it calls Leave() for ever.
  explicit Fiber(void (*entry)());
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs it until it calls Leave().
  void Enter();
  // Called on it: goes back to Enter().
  void Leave();
  // Begins anew at `entry`; what was on the stack is forgotten, not unwound.
  void Restart();

  bool Owns(uintptr_t address) const {
    return address - reinterpret_cast<uintptr_t>(stack_) < kStackBytes;
  }

 private:
  static constexpr size_t kStackBytes = 128 << 10;

  void Arrive();

  void (*const entry_)();
  std::byte* stack_;
  void* stack_pointer_ = nullptr;
  void* caller_pointer_ = nullptr;
  // What the sanitizers must know of both.
  void* fiber_ = nullptr;
  void* caller_fiber_ = nullptr;
  const void* caller_stack_ = nullptr;
  size_t caller_stack_bytes_ = 0;
};

}  // namespace cuda_emulator

#endif  // TESTS_CUDA_EMULATOR_FIBER_H_
