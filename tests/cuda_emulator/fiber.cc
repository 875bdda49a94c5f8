#include "tests/cuda_emulator/fiber.h"

#include <sys/mman.h>

#include "kernels/check.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#elif defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

// Keeps what a function must keep for its caller on the old stack, its address
// in *from, and goes on where `to` was kept. (ucontext would ask the kernel for
// the signal mask each time, some hundred times as long.)
extern "C" void CudaEmulatorSwitchStack(void** from, void* to);
asm(R"(
.text
.type CudaEmulatorSwitchStack, @function
CudaEmulatorSwitchStack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size CudaEmulatorSwitchStack, . - CudaEmulatorSwitchStack
)");

namespace cuda_emulator {
namespace {

constexpr size_t kGuardBytes = 4096;

// The fiber that begins to run, for its first function, which has no argument.
Fiber* starting = nullptr;

}  // namespace

Fiber::Fiber(void (*entry)()) : entry_(entry) {
  void* memory =
      mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  FLASH_CHECK(memory != MAP_FAILED);
  FLASH_CHECK(mprotect(memory, kGuardBytes, PROT_NONE) == 0);
  stack_ = static_cast<std::byte*>(memory) + kGuardBytes;
  Restart();
}

Fiber::~Fiber() {
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(fiber_);
#endif
  munmap(stack_ - kGuardBytes, kGuardBytes + kStackBytes);
}

void Fiber::Restart() {
  // As if Switch had been called from nowhere: six registers, then the address
  // to return to, where the stack is as after a call.
  constexpr int kRegisters = 6;
  void** top = reinterpret_cast<void**>(stack_ + kStackBytes) - 1;
  *top = nullptr;
  *--top = reinterpret_cast<void*>(+[] {
    Fiber* self = starting;
    self->Arrive();
    self->entry_();
  });
  for (int n = 0; n < kRegisters; ++n) *--top = nullptr;
  stack_pointer_ = top;
#if defined(__SANITIZE_ADDRESS__)
  fiber_ = nullptr;
#elif defined(__SANITIZE_THREAD__)
  if (fiber_ != nullptr) __tsan_destroy_fiber(fiber_);
  fiber_ = __tsan_create_fiber(0);
#endif
}

void Fiber::Enter() {
  starting = this;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&caller_fiber_, stack_, kStackBytes);
#elif defined(__SANITIZE_THREAD__)
  caller_fiber_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(fiber_, 0);
#endif
  CudaEmulatorSwitchStack(&caller_pointer_, stack_pointer_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(caller_fiber_, nullptr, nullptr);
#endif
}

void Fiber::Leave() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&fiber_, caller_stack_, caller_stack_bytes_);
#elif defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(caller_fiber_, 0);
#endif
  CudaEmulatorSwitchStack(&stack_pointer_, caller_pointer_);
  Arrive();
}

void Fiber::Arrive() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fiber_, &caller_stack_, &caller_stack_bytes_);
#endif
}

}  // namespace cuda_emulator
