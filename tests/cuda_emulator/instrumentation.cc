// What the compiler calls before each access to memory in code that is compiled
// with -fsanitize=thread. Kernels are, and are linked with this in
// place of the sanitizer's library.

#include <cstddef>
#include <cstdint>

#include "tests/cuda_emulator/memory.h"

using cuda_emulator::Access;
using cuda_emulator::CheckAccess;
using cuda_emulator::CheckAlignment;

#define CUDA_EMULATOR_ACCESSES(size)                 \
  void __tsan_read##size(void* address) {            \
    CheckAlignment(address, size);                   \
    CheckAccess(address, size, Access::kRead);       \
  }                                                  \
  void __tsan_write##size(void* address) {           \
    CheckAlignment(address, size);                   \
    CheckAccess(address, size, Access::kWrite);      \
  }                                                  \
  void __tsan_unaligned_read##size(void* address) {  \
    CheckAccess(address, size, Access::kRead);       \
  }                                                  \
  void __tsan_unaligned_write##size(void* address) { \
    CheckAccess(address, size, Access::kWrite);      \
  }

extern "C" {

CUDA_EMULATOR_ACCESSES(1)
CUDA_EMULATOR_ACCESSES(2)
CUDA_EMULATOR_ACCESSES(4)
CUDA_EMULATOR_ACCESSES(8)
CUDA_EMULATOR_ACCESSES(16)

void __tsan_read_range(void* address, ptrdiff_t bytes) {
  CheckAccess(address, static_cast<size_t>(bytes), Access::kRead);
}
void __tsan_write_range(void* address, ptrdiff_t bytes) {
  CheckAccess(address, static_cast<size_t>(bytes), Access::kWrite);
}

// Of no interest. (The types are those that GCC knows them by.)
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit(void*) {}
void __tsan_vptr_update(void*, void*) {}
void __tsan_vptr_read(void*) {}

}  // extern "C"
