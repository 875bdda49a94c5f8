// What the tests of a backend's operations share: a backend for each
// instruction set and number of threads and for a card, and the comparison of
// bits. Operations are done when they return, on a card too.
//
// The card is what the program is linked with: flash_cuda_emulated, or
// flash_cuda on a machine that has one.

#ifndef TESTS_KERNELS_BACKEND_FIXTURE_H_
#define TESTS_KERNELS_BACKEND_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/thread_pool.h"
#include "tests/kernels/test_numbers.h"
#include "tests/reference/random_source.h"

namespace flash {

// The rows of a step, with the memory that StepRows points to.
struct Step {
  std::vector<Row> rows;
  std::vector<RowRun> runs;
  StepRows view() const { return {.rows = rows, .runs = runs}; }
};

// A step whose rows have nothing to do with each other.
Step StepOfSingleRows(const std::vector<Row>& rows);

// The name that a card has among the instruction sets.
inline constexpr char kCuda[] = "cuda";

// A backend and the threads that it computes on.
class TestBackend {
 public:
  // `num_threads` is of no meaning to a card.
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

// One instruction set and a number of threads, or a card. A set that this
// processor has not got is skipped, and so is a card where there is none.
class BackendTest
    : public testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  static constexpr int kMaxRows = 40;

  BackendTest();

  void SetUp() override;

  std::string isa() const { return std::get<0>(GetParam()); }
  int num_threads() const { return std::get<1>(GetParam()); }
  bool is_on_card() const { return isa() == kCuda; }

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

// For INSTANTIATE_TEST_SUITE_P: every instruction set with 1, 2 and 3 threads,
// and a card.
inline auto EveryBackend() {
  std::vector<BackendTest::ParamType> backends = {{kCuda, 1}};
  for (const char* isa : {"avx512bf16", "avx512", "avx2", "portable"}) {
    for (const int num_threads : {1, 2, 3}) {
      backends.emplace_back(isa, num_threads);
    }
  }
  return testing::ValuesIn(backends);
}
std::string BackendName(
    const testing::TestParamInfo<BackendTest::ParamType>& info);

}  // namespace flash

#endif  // TESTS_KERNELS_BACKEND_FIXTURE_H_
