// Memory that a test and the kernels of its backend both use: the host's, or a
// card's managed memory.

#ifndef TESTS_KERNELS_TEST_MEMORY_H_
#define TESTS_KERNELS_TEST_MEMORY_H_

#include <cstddef>
#include <memory>

namespace flash {

enum class MemorySource { kHost, kCard };

// Where memory comes from, from now on.
void SetMemorySource(MemorySource source);

// At least `bytes` bytes that begin on a 64-byte line, of any content.
std::shared_ptr<std::byte[]> AllocateTestMemory(size_t bytes);

}  // namespace flash

#endif  // TESTS_KERNELS_TEST_MEMORY_H_
