// What the compiler calls for a pointer that its type does not allow, in code
// that is compiled with -fsanitize=alignment. As instrumentation.cc, this is in
// the place of the sanitizer's library.

#include <cstddef>
#include <cstdint>

#include "tests/cuda_emulator/memory.h"

extern "C" {

struct TypeMismatch {
  const void* file;
  uint32_t line, column;
  const void* type;
  uint8_t log_alignment;
  uint8_t kind;
};
void __ubsan_handle_type_mismatch_v1(TypeMismatch* mismatch,
                                     uintptr_t pointer) {
  cuda_emulator::CheckAlignment(reinterpret_cast<void*>(pointer),
                                size_t{1} << mismatch->log_alignment);
}
void __ubsan_handle_type_mismatch_v1_abort(TypeMismatch* mismatch,
                                           uintptr_t pointer) {
  __ubsan_handle_type_mismatch_v1(mismatch, pointer);
}

}  // extern "C"
