// How the emulator runs threads, and what it finds wrong with them.

#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "tests/cuda_emulator/emulator_fixture.h"
#include "tests/cuda_emulator/test_kernels.h"

namespace cuda_emulator {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr Order kOrders[] = {Order::kShuffled, Order::kAscending,
                             Order::kDescending};

std::vector<int> FirstNumbers(int count) {
  std::vector<int> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

class GridTest : public EmulatorTest {};

TEST_F(GridTest, RunsEachThreadOfEachBlockOnce) {
  for (const Order order : kOrders) {
    SetMachine({.order = order});
    const auto numbers = OnCard<uint32_t>::Zeros(2 * 3 * 2 * 30);
    ASSERT_EQ(WriteNumbers(dim3(2, 3, 2), dim3(5, 3, 2), numbers.data()),
              cudaSuccess);
    const std::vector<uint32_t> written = numbers.Download();
    for (uint32_t n = 0; n < written.size(); ++n) EXPECT_EQ(written[n], n);
  }
}

TEST_F(GridTest, RefusesBlocksThatNoCardTakes) {
  uint32_t* nowhere = nullptr;
  EXPECT_EQ(WriteNumbers(1, 1025, nowhere), cudaErrorInvalidConfiguration);
  EXPECT_EQ(WriteNumbers(0, 32, nowhere), cudaErrorInvalidConfiguration);
  EXPECT_EQ(WriteNumbers(dim3(1, 65536), 32, nowhere),
            cudaErrorInvalidConfiguration);
}

TEST_F(GridTest, HandsOverSharedMemoryAtABarrier) {
  std::vector<float> numbers(kReversed);
  std::iota(numbers.begin(), numbers.end(), 0.0f);
  const OnCard<float> in(numbers);
  const OnCard<float> out(numbers);
  ASSERT_EQ(Reverse(in.data(), out.data(), Between::kBarrier), cudaSuccess);
  EXPECT_EQ(out.Download(),
            std::vector<float>(numbers.rbegin(), numbers.rend()));
  EXPECT_THAT(Reports(), IsEmpty());
}

TEST_F(GridTest, ShufflesWithinAWarp) {
  std::vector<int> numbers = FirstNumbers(32);
  const OnCard<int> in(numbers);
  const auto out = OnCard<int>::Zeros(96);
  ASSERT_EQ(Shuffle(in.data(), out.data()), cudaSuccess);
  const std::vector<int> shuffled = out.Download();
  for (int lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(shuffled[lane], 31 * 32 / 2);
    EXPECT_EQ(shuffled[32 + lane], lane * (lane + 1) / 2);
    EXPECT_EQ(shuffled[64 + lane], 5);
  }
}

TEST_F(GridTest, CountsVotes) {
  const auto out = OnCard<unsigned>::Zeros(3);
  ASSERT_EQ(Vote(out.data()), cudaSuccess);
  EXPECT_THAT(out.Download(), ElementsAre(0xaaaaaaaa, 1u, 0u));
}

TEST_F(GridTest, AddsAtomically) {
  const OnCard<int> count({0});
  ASSERT_EQ(Count(count.data(), /*atomically=*/true), cudaSuccess);
  EXPECT_THAT(count.Download(), ElementsAre(120));
  EXPECT_THAT(Reports(), IsEmpty());
}

TEST_F(GridTest, FindsABarrierThatNotAllReach) {
  for (const Order order : kOrders) {
    SetMachine({.order = order});
    LeaveBeforeBarrier();
    EXPECT_THAT(Reports(), ElementsAre(HasSubstr("which has ended")));
    DivideAtBarrier();
    EXPECT_THAT(Reports(), ElementsAre(HasSubstr("is divided")));
  }
}

TEST_F(GridTest, FindsAShuffleThatNotAllReach) {
  LeaveBeforeShuffle();
  EXPECT_THAT(Reports(), ElementsAre(HasSubstr("lane 3, which has ended")));
  const auto out = OnCard<int>::Zeros(16);
  ReadLaneOutsideMask(out.data());
  EXPECT_THAT(Reports(), ElementsAre(HasSubstr("not in the mask")));
}

TEST_F(GridTest, RunsOnAfterALaunchThatWasGivenUp) {
  DivideAtBarrier();
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  Reports();
  const OnCard<int> count({0});
  Count(count.data(), /*atomically=*/true);
  EXPECT_THAT(count.Download(), ElementsAre(120));
}

// What is wrong with what a kernel does to memory.
class AccessTest : public GridTest {
 protected:
  void SetUp() override {
    GridTest::SetUp();
    if (!ChecksAccesses()) GTEST_SKIP() << "accesses are not checked here";
  }
};

TEST_F(AccessTest, FindsAMissingBarrierInEveryOrder) {
  const auto numbers = OnCard<float>::Zeros(kReversed);
  const auto out = OnCard<float>::Zeros(kReversed);
  for (const Order order : kOrders) {
    SetMachine({.order = order});
    Reverse(numbers.data(), out.data(), Between::kNothing);
    EXPECT_THAT(Reports(), ElementsAre(HasSubstr("shared memory that")));
    SwapNeighbours(numbers.data(), Between::kNothing);
    EXPECT_THAT(Reports(), ElementsAre(HasSubstr("without a barrier")));
    SwapNeighbours(numbers.data(), Between::kBarrier);
    EXPECT_THAT(Reports(), IsEmpty());
  }
}

TEST_F(AccessTest, FindsTwoThreadsThatWriteOneNumber) {
  const OnCard<int> number({0});
  Count(number.data(), /*atomically=*/false);
  EXPECT_THAT(Reports(), ElementsAre(HasSubstr("without a barrier")));
}

TEST_F(AccessTest, FindsAWriteToWhatManyReadBefore) {
  for (const Order order : kOrders) {
    SetMachine({.order = order});
    const OnCard<int> number({0});
    ReadThenWrite(number.data(), Between::kNothing);
    EXPECT_THAT(Reports(), ElementsAre(HasSubstr("without a barrier")));
    ReadThenWrite(number.data(), Between::kBarrier);
    EXPECT_THAT(Reports(), IsEmpty());
  }
}

TEST_F(AccessTest, KnowsNoBarrierBetweenBlocks) {
  const OnCard<int> numbers({1, 2});
  WriteAcrossBlocks(numbers.data());
  EXPECT_THAT(Reports(), ElementsAre(HasSubstr("without a barrier")));
}

TEST_F(AccessTest, FindsSharedMemoryThatNobodyHasWritten) {
  const OnCard<float> out({0, 0});
  ReadUnwrittenShared(out.data());
  EXPECT_THAT(Reports(), ElementsAre(HasSubstr("nobody has written")));
}

TEST_F(AccessTest, FindsMemoryThatIsNotTheCards) {
  const auto numbers = OnCard<float>::Zeros(3);
  StoreAt(numbers.data() + 2);
  EXPECT_THAT(Reports(), IsEmpty());
  StoreAt(numbers.data() + 3);
  EXPECT_THAT(Reports(), ElementsAre(HasSubstr("not allocated")));
  StoreAt(numbers.data() - 1);
  EXPECT_THAT(Reports(), ElementsAre(HasSubstr("not allocated")));
  float of_the_host = 0;
  StoreAt(&of_the_host);
  EXPECT_THAT(Reports(), ElementsAre(HasSubstr("memory of the host")));
}

TEST_F(AccessTest, FindsVectorsThatAreNotAligned) {
  if (!ChecksAlignment()) GTEST_SKIP() << "alignment is not checked here";
  const auto numbers = OnCard<float>::Zeros(8);
  const OnCard<float> out({0});
  LoadFourAt(numbers.data() + 4, out.data());
  EXPECT_THAT(Reports(), IsEmpty());
  LoadFourAt(numbers.data() + 2, out.data());
  EXPECT_THAT(Reports(), ElementsAre(HasSubstr("not a multiple of 16")));
}

}  // namespace
}  // namespace cuda_emulator
