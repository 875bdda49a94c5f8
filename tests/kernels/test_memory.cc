#include "tests/kernels/test_memory.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <new>

#include "kernels/check.h"

namespace flash {
namespace {

MemorySource source = MemorySource::kHost;

constexpr std::align_val_t kLine{64};

}  // namespace

void SetMemorySource(MemorySource from) { source = from; }

std::shared_ptr<std::byte[]> AllocateTestMemory(size_t bytes) {
  if (source == MemorySource::kHost) {
    return {new (kLine) std::byte[bytes],
            [](std::byte* data) { operator delete[](data, kLine); }};
  }
  void* data = nullptr;
  FLASH_CHECK(cudaMallocManaged(&data, std::max<size_t>(bytes, 1)) ==
              cudaSuccess);
  return {static_cast<std::byte*>(data),
          [](std::byte* memory) { cudaFree(memory); }};
}

}  // namespace flash
