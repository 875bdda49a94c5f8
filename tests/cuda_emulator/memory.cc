#include "tests/cuda_emulator/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>

#include "kernels/check.h"

namespace cuda_emulator {
namespace {

// Addresses, not bytes: pages that nobody touches cost nothing.
constexpr size_t kRangeBytes = size_t{16} << 30;
constexpr size_t kLine = 16;
// Between allocations; also what CUDA aligns them to.
constexpr size_t kGap = 256;

std::byte* Reserve(size_t bytes, int protection) {
  void* memory = mmap(nullptr, bytes, protection,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  FLASH_CHECK(memory != MAP_FAILED);
  madvise(memory, bytes, MADV_DONTDUMP);
  madvise(memory, bytes, MADV_NOHUGEPAGE);  // they are used in small pieces
  return static_cast<std::byte*>(memory);
}

struct Allocation {
  MemoryKind kind;
  size_t bytes;
  int device;
};

// Device memory, then managed memory.
class Ranges {
 public:
  static Ranges& Get() {
    static Ranges& ranges = *new Ranges;
    return ranges;
  }

  bool Contains(const void* address) const {
    return Offset(address) < 2 * kRangeBytes;
  }
  // Of an address within or without.
  size_t Offset(const void* address) const {
    return static_cast<size_t>(static_cast<const std::byte*>(address) - base_);
  }
  std::byte* base() const { return base_; }

  std::byte* Take(MemoryKind kind, size_t bytes) {
    const size_t size = (bytes + kGap - 1) / kGap * kGap + kGap;
    const auto kept = free_.find({kind, size});
    std::byte* address;
    if (kept != free_.end()) {
      address = kept->second;
      free_.erase(kept);
    } else {
      size_t& end = kind == MemoryKind::kDevice ? device_end_ : managed_end_;
      FLASH_CHECK(end + size <= kRangeBytes);
      address = base_ + (kind == MemoryKind::kDevice ? 0 : kRangeBytes) + end;
      end += size;
      if (opened_ > 0) Protect(PROT_READ | PROT_WRITE);
    }
    Mark(address, bytes, true);
    return address;
  }
  void GiveBack(MemoryKind kind, std::byte* address, size_t bytes) {
    Mark(address, bytes, false);
    const size_t size = (bytes + kGap - 1) / kGap * kGap + kGap;
    free_.insert({{kind, size}, address});
  }

  bool IsAllocated(const void* address, size_t bytes) const {
    size_t offset = Offset(address);
    while (bytes > 0) {
      const size_t in_line = std::min(bytes, kLine - offset % kLine);
      if (valid_[offset / kLine] < offset % kLine + in_line) return false;
      offset += in_line;
      bytes -= in_line;
    }
    return true;
  }

  void Open() {
    if (opened_++ == 0) Protect(PROT_READ | PROT_WRITE);
  }
  void Close() {
    if (--opened_ == 0) Protect(PROT_NONE);
  }

 private:
  Ranges()
      : base_(Reserve(2 * kRangeBytes, PROT_NONE)),
        valid_(reinterpret_cast<uint8_t*>(
            Reserve(2 * kRangeBytes / kLine, PROT_READ | PROT_WRITE))) {
    FLASH_CHECK(mprotect(base_ + kRangeBytes, kRangeBytes,
                         PROT_READ | PROT_WRITE) == 0);
  }

  void Protect(int protection) {
    FLASH_CHECK(
        mprotect(base_, (device_end_ + 4095) / 4096 * 4096, protection) == 0);
  }

  void Mark(std::byte* address, size_t bytes, bool allocated) {
    uint8_t* lines = valid_ + Offset(address) / kLine;
    std::memset(lines, allocated ? kLine : 0, bytes / kLine);
    if (bytes % kLine != 0) {
      lines[bytes / kLine] = allocated ? bytes % kLine : 0;
    }
  }

  std::byte* const base_;
  uint8_t* const valid_;
  // A gap stands before the first one too.
  size_t device_end_ = kGap;
  size_t managed_end_ = kGap;
  int opened_ = 0;
  std::multimap<std::pair<MemoryKind, size_t>, std::byte*> free_;
};

std::map<const std::byte*, Allocation>& Allocations() {
  static auto& allocations = *new std::map<const std::byte*, Allocation>;
  return allocations;
}

}  // namespace

void* AllocateMemory(MemoryKind kind, size_t bytes, int device, size_t limit) {
  if (kind == MemoryKind::kDevice &&
      (bytes > limit || AllocatedBytesOf(device) > limit - bytes)) {
    return nullptr;
  }
  std::byte* address = kind == MemoryKind::kPinned
                           ? new std::byte[bytes]
                           : Ranges::Get().Take(kind, bytes);
  Allocations()[address] = {kind, bytes, device};
  const DeviceMemoryOpen open;
  std::memset(address, 0xff, bytes);
  return address;
}

bool FreeMemory(void* address) {
  const auto it = Allocations().find(static_cast<std::byte*>(address));
  if (it == Allocations().end()) return false;
  if (it->second.kind == MemoryKind::kPinned) {
    delete[] static_cast<std::byte*>(address);
  } else {
    Ranges::Get().GiveBack(it->second.kind, static_cast<std::byte*>(address),
                           it->second.bytes);
  }
  Allocations().erase(it);
  return true;
}

size_t AllocatedBytesOf(int device) {
  size_t bytes = 0;
  for (const auto& [address, allocation] : Allocations()) {
    if (allocation.kind == MemoryKind::kDevice && allocation.device == device) {
      bytes += allocation.bytes;
    }
  }
  return bytes;
}

MemoryKind KindOf(const void* address) {
  const Ranges& ranges = Ranges::Get();
  if (ranges.Contains(address)) {
    return ranges.Offset(address) < kRangeBytes ? MemoryKind::kDevice
                                                : MemoryKind::kManaged;
  }
  const auto* byte = static_cast<const std::byte*>(address);
  auto it = Allocations().upper_bound(byte);
  if (it == Allocations().begin()) return MemoryKind::kPageable;
  --it;
  return byte < it->first + it->second.bytes ? it->second.kind
                                             : MemoryKind::kPageable;
}

bool IsAllocated(const void* address, size_t bytes) {
  return Ranges::Get().Contains(address) &&
         Ranges::Get().IsAllocated(address, bytes);
}

const std::byte* CardMemoryBegin() { return Ranges::Get().base(); }
size_t CardMemoryBytes() { return 2 * kRangeBytes; }

DeviceMemoryOpen::DeviceMemoryOpen() { Ranges::Get().Open(); }
DeviceMemoryOpen::~DeviceMemoryOpen() { Ranges::Get().Close(); }

}  // namespace cuda_emulator
