// Two hundred thousand tokens later the server is as large as it was.

#include <gtest/gtest.h>

#include <thread>

#include "tests/end_to_end/caller.h"
#include "tests/end_to_end/server_process.h"

namespace flash {
namespace {

TEST(MemoryTest, IsFlatOverTwoHundredThousandTokens) {
  constexpr int kStreams = 8;
  constexpr uint64_t kTokens = 25000;  // each: 200,000 together
  constexpr int64_t kGrowth = 2 << 20;
  ServerProcess server(
      {"--model=" FLASH_SOURCE_DIR "/deploy/models/demo", "--slots=8"});
  ASSERT_TRUE(server.WaitUntilServing()) << server.Errors();
  Caller watcher(server.address());
  std::vector<std::thread> threads;
  std::vector<Heard> heard(kStreams);
  for (int n = 0; n < kStreams; ++n) {
    threads.emplace_back([&, n] {
      v1::GenerateRequest request;
      request.set_text("Stream " + std::to_string(n));
      request.mutable_stopping()->set_max_tokens(kTokens);
      request.mutable_stopping()->set_ignore_eos(true);
      request.mutable_sampling()->set_seed(n);
      request.mutable_sampling()->set_repetition_penalty(1.1f);
      heard[n] = Caller(server.address()).Generate(request);
    });
  }
  // Buffers of gRPC and of every stream have been touched by then.
  constexpr int kPatience = 600;  // seconds
  const auto tokens_reach = [](uint64_t tokens) {
    return [tokens](const v1::Load& load) {
      return load.generated_tokens() >= tokens;
    };
  };
  EXPECT_TRUE(watcher.WaitFor(tokens_reach(kStreams * 2000), kPatience));
  const int64_t early = server.ResidentBytes();
  int64_t largest = early;
  EXPECT_TRUE(watcher.WaitFor(
      [&](const v1::Load& load) {
        largest = std::max(largest, server.ResidentBytes());
        return load.generated_tokens() >= kStreams * (kTokens - 500);
      },
      kPatience));
  for (std::thread& thread : threads) thread.join();
  for (const Heard& stream : heard) {
    EXPECT_TRUE(stream.status.ok()) << stream.status.error_message();
    EXPECT_EQ(stream.ids.size(), kTokens);
  }
  RecordProperty("resident_bytes_early", std::to_string(early));
  RecordProperty("resident_bytes_largest", std::to_string(largest));
  EXPECT_LE(largest - early, kGrowth)
      << "from " << early << " to " << largest << " bytes";
}

}  // namespace
}  // namespace flash
