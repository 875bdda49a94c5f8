// Loops that do nothing but what a machine can do at most: read, and multiply
// and add. One table for each instruction set, like the kernels'.

#ifndef TESTS_BENCH_LIMIT_LOOPS_H_
#define TESTS_BENCH_LIMIT_LOOPS_H_

#include <cstdint>

namespace flash {

struct LimitLoops {
  const char* name;  // of the instruction set
  // The sum of `n` floats, a multiple of 256: reads them once.
  float (*read)(const float* data, int64_t n);
  // `rounds` rounds of independent chains in registers. `seeds`: [64], zeros,
  // which the compiler must not know of.
  float (*multiply_add)(const float* seeds, int64_t rounds);
  float (*pair_multiply_add)(const float* seeds, int64_t rounds);
  // Floating-point operations of one round (an addition and a multiplication
  // are two), float32 and bfloat16.
  int64_t operations;
  int64_t pair_operations;
};

}  // namespace flash

#endif  // TESTS_BENCH_LIMIT_LOOPS_H_
