// What a kernel's thread may do to memory; see memory.h and emulator.h.

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "kernels/check.h"
#include "tests/cuda_emulator/grid.h"
#include "tests/cuda_emulator/memory.h"

// Where the linker puts the shared variables of all kernels, if there are any,
// and the program with its constants.
extern "C" {
extern std::byte __start_flash_shared[] __attribute__((weak));
extern std::byte __stop_flash_shared[] __attribute__((weak));
extern std::byte __executable_start[];
extern std::byte _end[];
}

namespace cuda_emulator {
namespace {

// How many have read since others could know of it: one thread, or several of
// a warp, of a block, of the grid.
enum class Readers : uint32_t { kThread, kWarp, kBlock, kGrid };

// Of one byte: its last accesses.
struct Shadow {
  ThreadId writer;
  Moment written : 31;
  Moment atomically : 1;
  ThreadId reader;
  Moment read : 30;
  uint32_t readers : 2;
};
static_assert(sizeof(Shadow) == 16);

Shadow* ReserveShadow(size_t bytes) {
  void* memory = mmap(nullptr, bytes * sizeof(Shadow), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  FLASH_CHECK(memory != MAP_FAILED);
  madvise(memory, bytes * sizeof(Shadow), MADV_DONTDUMP);
  return static_cast<Shadow*>(memory);
}

size_t SharedBytes() { return __stop_flash_shared - __start_flash_shared; }

// One access of the running thread.
class Check {
 public:
  Check(Grid& grid, const void* address, size_t bytes, Access access)
      : grid_(grid),
        address_(static_cast<const std::byte*>(address)),
        bytes_(bytes),
        access_(access) {}

  void Run() {
    if (grid_.thread().fiber->Owns(reinterpret_cast<uintptr_t>(address_))) {
      return;  // a variable of the thread
    }
    if (CardOffset() < CardMemoryBytes()) return InDeviceMemory();
    if (address_ >= __start_flash_shared && address_ < __stop_flash_shared) {
      return InSharedMemory();
    }
    const bool in_program = address_ >= __executable_start && address_ < _end;
    if (in_program && access_ == Access::kRead) return;  // a constant
    grid_.Fail(What() + " memory of the host");
  }

 private:
  size_t CardOffset() const {
    return static_cast<size_t>(address_ - CardMemoryBegin());
  }

  void InDeviceMemory() {
    static Shadow* const shadow = ReserveShadow(CardMemoryBytes());
    if (!IsAllocated(address_, bytes_)) {
      grid_.Fail(What() + " memory that is not allocated");
    }
    Shadow* bytes = shadow + CardOffset();
    for (size_t n = 0; n < bytes_; ++n) {
      if (bytes[n].written < grid_.launched()) bytes[n].written = 0;
      if (bytes[n].read < grid_.launched()) bytes[n].read = 0;
      Update(bytes[n], "device memory");
    }
  }

  void InSharedMemory() {
    static Shadow* const shadow = ReserveShadow(SharedBytes());
    Shadow* bytes = shadow + (address_ - __start_flash_shared);
    for (size_t n = 0; n < bytes_; ++n) {
      if (bytes[n].written < grid_.block_began()) bytes[n].written = 0;
      if (bytes[n].read < grid_.block_began()) bytes[n].read = 0;
      if (access_ != Access::kWrite && bytes[n].written == 0) {
        grid_.Fail(What() + " shared memory that nobody has written");
      }
      Update(bytes[n], "shared memory");
    }
  }

  void Update(Shadow& byte, const char* where) {
    const bool both_atomic = access_ == Access::kAtomic && byte.atomically;
    if (byte.written != 0 && !both_atomic &&
        !Knows(byte.writer, byte.written)) {
      Race(where, "wrote", byte.writer);
    }
    if (access_ != Access::kRead) {
      if (byte.read != 0 && !KnowsReaders(byte)) {
        Race(where, "read", byte.reader);
      }
      byte.writer = grid_.thread_id();
      byte.written = grid_.now();
      byte.atomically = access_ == Access::kAtomic;
      if (access_ == Access::kWrite) byte.read = 0;
      return;
    }
    if (byte.read == 0 || KnowsReaders(byte)) {
      byte.readers = static_cast<uint32_t>(Readers::kThread);
    } else {
      byte.readers =
          std::max(byte.readers, static_cast<uint32_t>(With(byte.reader)));
    }
    byte.reader = grid_.thread_id();
    byte.read = grid_.now();
  }

  // Whether the running thread has passed a barrier since thread `id` did
  // something at `moment`, and together with it.
  bool Knows(ThreadId id, Moment moment) const {
    if (id == grid_.thread_id()) return true;
    if (grid_.BlockOf(id) != grid_.block_number()) return false;
    if (moment < grid_.block_synced()) return true;
    const Thread& thread = grid_.thread();
    return grid_.WarpOf(id) == thread.warp() && moment < thread.synced &&
           (thread.synced_with >> grid_.LaneOf(id) & 1) != 0;
  }

  bool KnowsReaders(const Shadow& byte) const {
    const Thread& thread = grid_.thread();
    switch (static_cast<Readers>(byte.readers)) {
      case Readers::kThread:
        return Knows(byte.reader, byte.read);
      case Readers::kWarp:
        if (grid_.BlockOf(byte.reader) != grid_.block_number()) return false;
        if (byte.read < grid_.block_synced()) return true;
        return grid_.WarpOf(byte.reader) == thread.warp() &&
               byte.read < thread.synced && thread.synced_with == 0xffffffffu;
      case Readers::kBlock:
        return grid_.BlockOf(byte.reader) == grid_.block_number() &&
               byte.read < grid_.block_synced();
      case Readers::kGrid:
        return false;
    }
    return false;
  }

  // The smallest group that has both `id` and the running thread.
  Readers With(ThreadId id) const {
    if (id == grid_.thread_id()) return Readers::kThread;
    if (grid_.BlockOf(id) != grid_.block_number()) return Readers::kGrid;
    return grid_.WarpOf(id) == grid_.thread().warp() ? Readers::kWarp
                                                     : Readers::kBlock;
  }

  void Race(const char* where, const char* did, ThreadId id) {
    grid_.Fail(What() + " " + where + " that thread number " +
               std::to_string(id) + " of the grid " + did +
               ", without a barrier between");
  }

  std::string What() const {
    const char* verb = access_ == Access::kRead    ? "reads "
                       : access_ == Access::kWrite ? "writes "
                                                   : "atomically changes ";
    return verb + std::to_string(bytes_) + " bytes of";
  }

  Grid& grid_;
  const std::byte* const address_;
  const size_t bytes_;
  const Access access_;
};

}  // namespace

void PoisonSharedMemory() {
  if (SharedBytes() > 0) std::memset(__start_flash_shared, 0xff, SharedBytes());
}

void CheckAccess(const void* address, size_t bytes, Access access) {
  Grid* grid = Grid::Running();
  if (grid == nullptr) return;
  Check(*grid, address, bytes, access).Run();
  if (grid->failed()) grid->GiveUp();
}

void CheckAlignment(const void* address, size_t alignment) {
  Grid* grid = Grid::Running();
  if (grid == nullptr ||
      reinterpret_cast<uintptr_t>(address) % alignment == 0) {
    return;
  }
  grid->Fail("uses an address that is not a multiple of " +
             std::to_string(alignment));
  grid->GiveUp();
}

void LoadAtomically(const void* address, void* to, int bytes) {
  CheckAccess(address, bytes, Access::kAtomic);
  CheckAlignment(address, bytes);
  std::memcpy(to, address, bytes);
}

void StoreAtomically(void* address, const void* from, int bytes) {
  std::memcpy(address, from, bytes);
}

}  // namespace cuda_emulator
