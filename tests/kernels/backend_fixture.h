// What the tests of a backend's operations share: a backend for each
// instruction set and number of threads, numbers in memory as backend.h wants
// them, and the comparison of bits.

#ifndef TESTS_KERNELS_BACKEND_FIXTURE_H_
#define TESTS_KERNELS_BACKEND_FIXTURE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/thread_pool.h"
#include "tests/reference/random_source.h"

namespace flash {

// What memory is filled with that holds nothing: read as any type of number,
// it is not finite.
inline constexpr uint32_t kNaNs = 0xffffffff;
inline constexpr uint32_t kInfinities = 0x7f800000;          // of float32
inline constexpr uint32_t kBFloat16Infinities = 0x7f807f80;  // pairs of them

// The nearest number that `type` has, ties to even.
float RoundedTo(DataType type, float number);

// Memory that begins on a 64-byte line, and ends where its last line does.
class Lines {
 public:
  Lines(size_t bytes, uint32_t pattern);
  std::byte* data() const { return lines_.get()->bytes; }
  size_t size() const { return size_; }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  size_t size_;
  std::unique_ptr<Line[]> lines_;
};

// Numbers as a checkpoint stores them: [rows, cols] without padding, beginning
// `misaligned` bytes behind an aligned address. Random ones at first.
class StoredNumbers {
 public:
  StoredNumbers(int64_t rows, int64_t cols, DataType type, RandomSource& random,
                size_t misaligned = 0);

  const std::byte* data() const { return bytes_.data() + misaligned_; }
  DataType type() const { return type_; }
  int64_t rows() const { return rows_; }
  float At(int64_t row, int64_t col) const;
  void Set(int64_t row, int64_t col, float number);

 private:
  std::byte* Address(int64_t row, int64_t col);

  const int64_t rows_;
  const int64_t cols_;
  const DataType type_;
  const size_t misaligned_;
  std::vector<std::byte> bytes_;
};

// Rows of Padded(cols) numbers, each on a line. Before each row lies a line of
// NaN that nobody may read or write.
class Matrix {
 public:
  // All NaN, padding too: a result must overwrite everything.
  Matrix(int64_t rows, int64_t cols);
  // Numbers around 0, and zeros in the padding.
  static Matrix Random(int64_t rows, int64_t cols, RandomSource& random);
  // The rows of `from` that `rows` names.
  static Matrix Chosen(const Matrix& from, const std::vector<int>& rows);

  MatrixView<float> view() const;
  float* Row(int64_t row) const { return view().Row(row); }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }

  // Each row's bits, padding included.
  std::vector<std::vector<uint32_t>> Bits() const;

  void ExpectZeroPadding() const;
  // That nothing was written between the rows.
  void ExpectIntact() const;

 private:
  int64_t stride() const { return Padded(cols_) + 16; }

  int64_t rows_;
  int64_t cols_;
  Lines lines_;
};

// The rows of a step, with the memory that StepRows points to.
struct Step {
  std::vector<Row> rows;
  std::vector<RowRun> runs;
  StepRows view() const { return {.rows = rows, .runs = runs}; }
};

// A step whose rows have nothing to do with each other.
Step StepOfSingleRows(const std::vector<Row>& rows);

// A backend and the threads that it computes on.
class TestBackend {
 public:
  TestBackend(const std::string& isa, int num_threads,
              const Workload& workload);
  Backend* operator->() const { return backend_.get(); }
  Backend& operator*() const { return *backend_; }

  // Ends the step, and returns the faults of its `rows` rows.
  std::vector<uint8_t> EndStep(size_t rows) const;

 private:
  ThreadPool pool_;
  std::unique_ptr<Backend> backend_;
};

// One instruction set, and a number of threads. A set that this processor has
// not got is skipped.
class BackendTest
    : public testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  static constexpr int kMaxRows = 40;

  void SetUp() override;

  std::string isa() const { return std::get<0>(GetParam()); }
  int num_threads() const { return std::get<1>(GetParam()); }

  TestBackend Make(const Workload& workload = {.max_rows = kMaxRows}) const {
    return TestBackend(isa(), num_threads(), workload);
  }

  using Bits = std::vector<uint32_t>;

  // compute(backend, places) returns the bits of each of `places`, numbers
  // below `num_places`, which are computed at once and in that order. Expects
  // those of each place to be the same alone on one thread, and in crowds of
  // every size, in any order, on this test's threads.
  template <typename Compute>
  void ExpectSameBitsAloneAndInACrowd(const Workload& workload, int num_places,
                                      Compute compute) const {
    const TestBackend single(isa(), 1, workload);
    const TestBackend team = Make(workload);
    std::vector<Bits> alone;
    for (int place = 0; place < num_places; ++place) {
      alone.push_back(compute(*single, std::vector<int>{place}).at(0));
    }
    RandomSource random(num_places);
    for (int size = 2; size <= num_places; ++size) {
      const std::vector<int> crowd = RandomPlaces(num_places, size, random);
      const std::vector<Bits> together = compute(*team, crowd);
      for (int n = 0; n < size; ++n) {
        EXPECT_EQ(together[n], alone[crowd[n]])
            << "place " << crowd[n] << ", number " << n << " of " << size;
      }
    }
  }

 private:
  // `size` different numbers below `num_places`.
  static std::vector<int> RandomPlaces(int num_places, int size,
                                       RandomSource& random);
};

// For INSTANTIATE_TEST_SUITE_P: every instruction set with 1, 2 and 3 threads.
inline auto EveryBackend() {
  return testing::Combine(
      testing::Values<std::string>("avx512bf16", "avx512", "avx2", "portable"),
      testing::Values(1, 2, 3));
}
std::string BackendName(
    const testing::TestParamInfo<BackendTest::ParamType>& info);

}  // namespace flash

#endif  // TESTS_KERNELS_BACKEND_FIXTURE_H_
