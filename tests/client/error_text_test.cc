#include "client/error_text.h"

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "gtest/gtest.h"

namespace flash {
namespace {

TEST(ErrorTextTest, TellsCodeReasonMessageAndDetails) {
  google::rpc::Status packed;
  google::rpc::ErrorInfo info;
  info.set_reason("QUEUE_FULL");
  packed.add_details()->PackFrom(info);
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_nanos(700'000'000);
  packed.add_details()->PackFrom(retry);
  EXPECT_EQ(ErrorText(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "full",
                                   packed.SerializeAsString())),
            "RESOURCE_EXHAUSTED (QUEUE_FULL): full; try again in 700 ms");
}

TEST(ErrorTextTest, AddsViolationsThatTheMessageDoesNotTell) {
  google::rpc::Status packed;
  google::rpc::BadRequest bad;
  auto* violation = bad.add_field_violations();
  violation->set_field("a");
  violation->set_description("is 1");
  violation = bad.add_field_violations();
  violation->set_field("b");
  violation->set_description("is 2");
  packed.add_details()->PackFrom(bad);
  EXPECT_EQ(ErrorText(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "a is 1",
                                   packed.SerializeAsString())),
            "INVALID_ARGUMENT: a is 1; b is 2");
}

TEST(ErrorTextTest, FindsTheReason) {
  google::rpc::Status packed;
  packed.add_details()->PackFrom(google::rpc::RetryInfo());
  google::rpc::ErrorInfo info;
  info.set_reason("QUEUE_FULL");
  packed.add_details()->PackFrom(info);
  EXPECT_EQ(ErrorReason(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "",
                                     packed.SerializeAsString())),
            "QUEUE_FULL");
  EXPECT_EQ(ErrorReason(grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone")),
            "");
}

TEST(ErrorTextTest, FindsWhenToTryAgain) {
  google::rpc::Status packed;
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(1);
  retry.mutable_retry_delay()->set_nanos(5'000'000);
  packed.add_details()->PackFrom(google::rpc::ErrorInfo());
  packed.add_details()->PackFrom(retry);
  const auto delay = RetryDelay(grpc::Status(
      grpc::StatusCode::RESOURCE_EXHAUSTED, "", packed.SerializeAsString()));
  ASSERT_TRUE(delay.has_value());
  EXPECT_EQ(delay->count(), 1005);
  EXPECT_FALSE(RetryDelay(grpc::Status::OK).has_value());
}

TEST(ErrorTextTest, DoesNotSayTheSameTwice) {
  EXPECT_EQ(ErrorText(grpc::Status(grpc::StatusCode::CANCELLED, "CANCELLED")),
            "CANCELLED");
}

}  // namespace
}  // namespace flash
