// The one floating-point mode in which everything is computed: round to nearest
// even, denormals flushed to zero on both sides. The dense bfloat16 instruction
// knows no other, and denormals would make steps slow at random.

#ifndef KERNELS_FLOAT_MODE_H_
#define KERNELS_FLOAT_MODE_H_

#include <immintrin.h>

namespace flash {

// Sets the mode in this thread for as long as it lives.
class FloatMode {
 public:
  FloatMode() : saved_(_mm_getcsr()) { _mm_setcsr(kFlushDenormals); }
  ~FloatMode() { _mm_setcsr(saved_); }

  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;

 private:
  // All exceptions masked, nearest even, flush to zero, denormals are zero.
  static constexpr unsigned kFlushDenormals = 0x1f80 | 0x8000 | 0x0040;

  const unsigned saved_;
};

}  // namespace flash

#endif  // KERNELS_FLOAT_MODE_H_
