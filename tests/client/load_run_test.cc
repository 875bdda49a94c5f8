#include "client/load_run.h"

#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace flash {
namespace {

using testing::HasSubstr;

grpc::Status Exhausted(const std::string& reason) {
  google::rpc::ErrorInfo info;
  info.set_reason(reason);
  google::rpc::Status packed;
  packed.add_details()->PackFrom(info);
  return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "no",
                      packed.SerializeAsString());
}

bool GoOn(const LoadProgress&) { return true; }

TEST(LoadRunTest, TakesAFullQueueForAnAnswer) {
  EXPECT_FALSE(IsFailure(grpc::Status::OK));
  EXPECT_FALSE(IsFailure(Exhausted("QUEUE_FULL")));
  EXPECT_TRUE(IsRefusal(Exhausted("QUEUE_FULL")));
  EXPECT_FALSE(IsRefusal(grpc::Status::OK));
  EXPECT_FALSE(IsRefusal(Exhausted("READER_TOO_SLOW")));
  EXPECT_TRUE(IsFailure(Exhausted("READER_TOO_SLOW")));
  EXPECT_TRUE(
      IsFailure(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "large")));
  EXPECT_TRUE(IsFailure(grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone")));
  EXPECT_TRUE(IsFailure(grpc::Status(grpc::StatusCode::CANCELLED, "left")));
}

TEST(LoadRunTest, TellsThatNobodyIsThere) {
  LoadSettings settings;
  settings.server = "127.0.0.1:1";  // nobody has this port
  settings.sessions = 2;
  settings.prompt_text = "x";
  settings.requests = 3;
  const LoadResult result = RunLoad(settings, {}, GoOn);
  EXPECT_GE(result.requests_failed, 3);
  EXPECT_THAT(result.first_failure, HasSubstr("UNAVAILABLE"));
  EXPECT_GE(result.by_status.at("UNAVAILABLE"), 3);
  EXPECT_EQ(result.tokens, 0);
}

TEST(LoadRunTest, EndsEarlyWhenItIsToldTo) {
  LoadSettings settings;
  settings.server = "127.0.0.1:1";
  settings.prompt_text = "x";
  settings.duration = std::chrono::hours(1);
  const LoadResult result =
      RunLoad(settings, {}, [](const LoadProgress&) { return false; });
  EXPECT_LT(result.seconds, 3600);
}

TEST(LoadRunTest, CountsFailuresOfTheWarmUp) {
  LoadSettings settings;
  settings.server = "127.0.0.1:1";
  settings.prompt_text = "x";
  settings.warmup = std::chrono::milliseconds(300);
  settings.duration = std::chrono::milliseconds(1);
  const LoadResult result = RunLoad(settings, {}, GoOn);
  EXPECT_GE(result.requests_failed, 1);
}

}  // namespace
}  // namespace flash
