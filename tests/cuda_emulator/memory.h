// The memory of the emulated cards: where allocations lie, and what kernels may
// do to it.
//
// One range of addresses is device memory, one managed memory. A byte of shadow
// says how much of each 16 bytes is allocated; sixteen say of each byte who
// wrote and who read it last, and when.

#ifndef TESTS_CUDA_EMULATOR_MEMORY_H_
#define TESTS_CUDA_EMULATOR_MEMORY_H_

#include <cstddef>
#include <cstdint>

namespace cuda_emulator {

enum class MemoryKind { kDevice, kManaged, kPinned, kPageable };

// Memory of `kind`, which is not kPageable, full of NaN. Null if `device` would
// have given more than `limit` bytes of its own.
void* AllocateMemory(MemoryKind kind, size_t bytes, int device, size_t limit);
// False if there is no such allocation.
bool FreeMemory(void* address);
// What `device` has given of its own memory.
size_t AllocatedBytesOf(int device);

// kPageable for what it does not know.
MemoryKind KindOf(const void* address);
// Whether these bytes are of one allocation of a card.
bool IsAllocated(const void* address, size_t bytes);

// The addresses of device and managed memory, allocated or not.
const std::byte* CardMemoryBegin();
size_t CardMemoryBytes();

// While one of these lives, device memory can be touched.
class DeviceMemoryOpen {
 public:
  DeviceMemoryOpen();
  ~DeviceMemoryOpen();
  DeviceMemoryOpen(const DeviceMemoryOpen&) = delete;
  DeviceMemoryOpen& operator=(const DeviceMemoryOpen&) = delete;
};

// Fills all shared variables with NaN.
void PoisonSharedMemory();

enum class Access { kRead, kWrite, kAtomic };
// Fails the running thread if it may not do this. Does nothing in host code.
void CheckAccess(const void* address, size_t bytes, Access access);
// The same, if the address is not a multiple of `alignment`.
void CheckAlignment(const void* address, size_t alignment);

}  // namespace cuda_emulator

#endif  // TESTS_CUDA_EMULATOR_MEMORY_H_
