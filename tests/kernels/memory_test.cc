// A backend's memory, and what it says about itself.

#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "tests/kernels/backend_fixture.h"

namespace flash {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::StartsWith;

class MemoryTest : public BackendTest {
 protected:
  static std::vector<std::byte> Contents(Backend& backend,
                                         const Buffer& buffer) {
    std::vector<std::byte> contents(buffer.size(), std::byte{99});
    backend.Download(contents.data(), buffer.data(), contents.size());
    return contents;
  }
};

TEST_P(MemoryTest, IsZeroAndOnALine) {
  const TestBackend backend = Make();
  for (const size_t size : {1, 63, 64, 4097, 100'000}) {
    const auto buffer = backend->Allocate(size);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    EXPECT_EQ((*buffer)->size(), size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>((*buffer)->data()) % 64, 0u);
    EXPECT_THAT(Contents(*backend, **buffer), Each(std::byte{0}));
  }
}

TEST_P(MemoryTest, MayBeEmpty) {
  const TestBackend backend = Make();
  const auto buffer = backend->Allocate(0);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_EQ((*buffer)->size(), 0u);
}

TEST_P(MemoryTest, HoldsWhatIsCopiedToIt) {
  const TestBackend backend = Make();
  const auto first = backend->Allocate(1000);
  const auto second = backend->Allocate(1000);
  std::vector<std::byte> numbers(1000);
  for (size_t n = 0; n < numbers.size(); ++n) numbers[n] = std::byte(n % 251);
  backend->Upload((*first)->data(), numbers.data(), numbers.size());
  backend->Copy((*second)->data(), (*first)->data(), numbers.size());
  backend->Zero((*first)->data() + 1, 998);
  EXPECT_EQ(Contents(*backend, **second), numbers);
  std::memset(numbers.data() + 1, 0, 998);
  EXPECT_EQ(Contents(*backend, **first), numbers);
}

TEST_P(MemoryTest, IsRefusedWhereThereIsNone) {
  const TestBackend backend = Make();
  const auto buffer = backend->Allocate(size_t{1} << 60);
  EXPECT_TRUE(absl::IsResourceExhausted(buffer.status())) << buffer.status();
}

TEST_P(MemoryTest, BelongsToABackendThatNamesItself) {
  const std::string name = Make()->Describe();
  if (is_on_card()) {
    EXPECT_THAT(name, StartsWith("cuda "));
    return;
  }
  EXPECT_THAT(name, StartsWith("cpu " + isa() + ", "));
  EXPECT_THAT(name,
              HasSubstr(num_threads() == 1
                            ? std::string("1 thread")
                            : std::to_string(num_threads()) + " threads"));
}

INSTANTIATE_TEST_SUITE_P(Backends, MemoryTest, EveryBackend(), BackendName);

}  // namespace
}  // namespace flash
