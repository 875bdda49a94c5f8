#ifndef TESTS_BENCH_MEDIAN_H_
#define TESTS_BENCH_MEDIAN_H_

#include <algorithm>
#include <vector>

#include "kernels/check.h"

namespace flash {

// The upper one of the two in the middle, if there are two.
inline double Median(std::vector<double> numbers) {
  FLASH_CHECK(!numbers.empty());
  std::sort(numbers.begin(), numbers.end());
  return numbers[numbers.size() / 2];
}

}  // namespace flash

#endif  // TESTS_BENCH_MEDIAN_H_
