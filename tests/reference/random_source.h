// Random numbers for tests: the same ones on every machine and with every
// standard library (whose distributions may differ).

#ifndef TESTS_REFERENCE_RANDOM_SOURCE_H_
#define TESTS_REFERENCE_RANDOM_SOURCE_H_

#include <cstdint>
#include <initializer_list>
#include <random>

namespace flash {

class RandomSource {
 public:
  explicit RandomSource(uint64_t seed) : bits_(seed) {}

  // In [0, 1).
  double Uniform() { return static_cast<double>(bits_() >> 11) * 0x1p-53; }

  // Mean 0, variance 1, never beyond ±6: the sum of twelve uniform numbers.
  // Box and Muller's would be shorter than its logarithm is reproducible.
  double Normal() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += Uniform();
    return sum;
  }

  // From `min` to `max`, both included.
  int64_t Integer(int64_t min, int64_t max) {
    return min +
           static_cast<int64_t>(Uniform() * static_cast<double>(max - min + 1));
  }

  bool Chance(double probability) { return Uniform() < probability; }

  template <typename T>
  T OneOf(std::initializer_list<T> choices) {
    return choices
        .begin()[Integer(0, static_cast<int64_t>(choices.size()) - 1)];
  }

 private:
  std::mt19937_64 bits_;
};

}  // namespace flash

#endif  // TESTS_REFERENCE_RANDOM_SOURCE_H_
