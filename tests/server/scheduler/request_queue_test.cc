#include "server/scheduler/request_queue.h"

#include <memory>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace flash {
namespace {

using testing::HasSubstr;

std::unique_ptr<Request> WithTokens(int n) {
  auto request = std::make_unique<Request>();
  request->id = std::to_string(n);
  request->prompt.assign(n, 1);
  return request;
}

bool Always(const QueuedRequest&) { return true; }

TEST(RequestQueueTest, GivesRequestsBackInTheOrderTheyCame) {
  RequestQueue queue(10, 100);
  for (int n : {3, 1, 2}) {
    auto request = WithTokens(n);
    EXPECT_TRUE(queue.Push(request, Clock::time_point()).ok());
    EXPECT_EQ(request, nullptr);
  }
  EXPECT_EQ(queue.num_requests(), 3);
  EXPECT_EQ(queue.num_tokens(), 6);
  for (const char* id : {"3", "1", "2"}) {
    EXPECT_EQ(queue.PopIf(Always)->request->id, id);
  }
  EXPECT_FALSE(queue.PopIf(Always).has_value());
  EXPECT_EQ(queue.num_tokens(), 0);
}

TEST(RequestQueueTest, RefusesMoreThanMaxRequestsAndLeavesTheRequestAsItWas) {
  RequestQueue queue(1, 100);
  auto first = WithTokens(1);
  EXPECT_TRUE(queue.Push(first, Clock::time_point()).ok());
  auto second = WithTokens(1);
  const Request* const before = second.get();
  const absl::Status status = queue.Push(second, Clock::time_point());
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("max_queued_requests"));
  EXPECT_EQ(second.get(), before);
  queue.PopIf(Always);
  EXPECT_TRUE(queue.Push(second, Clock::time_point()).ok());
}

TEST(RequestQueueTest, CountsPriorIdsAgainstMaxTokens) {
  RequestQueue queue(10, 10);
  auto first = WithTokens(4);
  first->prior_output_ids = {{1, 2}, {3}};
  EXPECT_TRUE(queue.Push(first, Clock::time_point()).ok());
  EXPECT_EQ(queue.num_tokens(), 7);
  auto tooMany = WithTokens(4);
  const absl::Status status = queue.Push(tooMany, Clock::time_point());
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("max_queued_tokens"));
  auto fits = WithTokens(3);
  EXPECT_TRUE(queue.Push(fits, Clock::time_point()).ok());
}

TEST(RequestQueueTest, NeverTakesFromBehindTheFirst) {
  RequestQueue queue(10, 100);
  for (int n : {5, 1}) {
    auto request = WithTokens(n);
    EXPECT_TRUE(queue.Push(request, Clock::time_point()).ok());
  }
  const auto is_short = [](const QueuedRequest& queued) {
    return queued.request->prompt.size() < 3;
  };
  EXPECT_FALSE(queue.PopIf(is_short).has_value());
  EXPECT_EQ(queue.num_requests(), 2);
}

TEST(RequestQueueTest, RemovesTheOnesThatLeaveAndKeepsTheOrderOfTheRest) {
  RequestQueue queue(10, 100);
  for (int n : {1, 2, 3, 4, 5}) {
    auto request = WithTokens(n);
    EXPECT_TRUE(queue.Push(request, Clock::time_point()).ok());
  }
  const auto is_even = [](const QueuedRequest& queued) {
    return queued.request->prompt.size() % 2 == 0;
  };
  const std::vector<QueuedRequest> removed = queue.RemoveIf(is_even);
  ASSERT_EQ(removed.size(), 2u);
  EXPECT_EQ(removed[0].request->id, "2");
  EXPECT_EQ(removed[1].request->id, "4");
  EXPECT_EQ(queue.num_tokens(), 9);
  for (const char* id : {"1", "3", "5"}) {
    EXPECT_EQ(queue.PopIf(Always)->request->id, id);
  }
}

TEST(RequestQueueTest, TakesNothingMoreAfterCloseAndKeepsWhatItHas) {
  RequestQueue queue(10, 100);
  auto first = WithTokens(1);
  EXPECT_TRUE(queue.Push(first, Clock::time_point()).ok());
  EXPECT_FALSE(queue.closed());
  queue.Close(absl::UnavailableError("draining"));
  queue.Close(absl::InternalError("too late to matter"));
  EXPECT_TRUE(queue.closed());
  auto second = WithTokens(1);
  EXPECT_EQ(queue.Push(second, Clock::time_point()),
            absl::UnavailableError("draining"));
  EXPECT_NE(second, nullptr);
  EXPECT_EQ(queue.num_requests(), 1);
}

TEST(RequestQueueTest, LosesNothingWhenManyThreadsPush) {
  RequestQueue queue(1000, 100000);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&queue] {
      for (int i = 0; i < 100; ++i) {
        auto request = WithTokens(2);
        EXPECT_TRUE(queue.Push(request, Clock::time_point()).ok());
      }
    });
  }
  int taken = 0;
  while (taken < 400) taken += queue.PopIf(Always).has_value() ? 1 : 0;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(queue.num_requests(), 0);
  EXPECT_EQ(queue.num_tokens(), 0);
}

}  // namespace
}  // namespace flash
