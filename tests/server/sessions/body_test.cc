#include "server/sessions/body.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "server/sessions/blob_store.h"

namespace {

// The memory whose end is watched, and what was in it then.
std::atomic<const char*> watched{nullptr};
size_t watched_size = 0;
int bytes_left = -1;

void Free(void* memory) noexcept {
  if (memory != nullptr && memory == watched.load()) {
    watched = nullptr;
    bytes_left = 0;
    const auto* byte = static_cast<const volatile char*>(memory);
    for (size_t i = 0; i < watched_size; ++i) bytes_left += byte[i] != 0;
  }
  std::free(memory);
}

}  // namespace

// All of this program's, so that they fit together.
void* operator new(size_t size) {
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete(void* memory, size_t) noexcept { Free(memory); }

namespace flash {
namespace {

void Watch(const std::string& bytes) {
  bytes_left = -1;
  watched_size = bytes.size();
  watched = bytes.data();
}

TEST(BodyTest, IsOverwrittenWhenItsLastOwnerGoes) {
  auto body = MakeBody(std::string(1000, 'x'));
  auto other = body;
  Watch(*body);
  body.reset();
  EXPECT_EQ(bytes_left, -1);
  EXPECT_EQ(*other, std::string(1000, 'x'));
  other.reset();
  EXPECT_EQ(bytes_left, 0);
}

TEST(BodyTest, IsNoCopyOfItsBytes) {
  std::string bytes(1000, 'x');
  const char* const memory = bytes.data();
  EXPECT_EQ(MakeBody(std::move(bytes))->data(), memory);
}

TEST(BodyTest, IsNotCopiedIfItIsOverwrittenAnyway) {
  const auto body = MakeBody("bytes");
  EXPECT_EQ(WipedBody(body), body);
}

TEST(BodyTest, IsCopiedIfItWouldNotBeOverwritten) {
  const auto plain = std::make_shared<const std::string>(1000, 'x');
  auto body = WipedBody(plain);
  EXPECT_NE(body, plain);
  EXPECT_EQ(*body, *plain);
  Watch(*body);
  body.reset();
  EXPECT_EQ(bytes_left, 0);
}

TEST(BodyTest, IsOverwrittenWhenAStoreInMemoryDeletesIt) {
  const auto store = OpenBlobStore("memory", 1 << 20).value();
  ASSERT_TRUE(store
                  ->Put("name", {"", MakeBody(std::string(1000, 'x'))}, {},
                        absl::InfiniteFuture())
                  .ok());
  Watch(*store->Get("name")->blob.body);
  ASSERT_TRUE(store->Delete("name", {}).ok());
  EXPECT_EQ(bytes_left, 0);
}

}  // namespace
}  // namespace flash
