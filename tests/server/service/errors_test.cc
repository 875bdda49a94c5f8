#include "server/service/errors.h"

#include "gmock/gmock.h"
#include "tests/server/service/wire_details.h"

namespace flash {
namespace {

using testing::HasSubstr;
using testing::Pair;
using testing::UnorderedElementsAre;

TEST(ErrorsTest, PacksTheViolations) {
  const grpc::Status status =
      ToGrpcStatus(InvalidRequest({{"a", "is 1; the most is 0"}, {"b", "no"}}));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "a is 1; the most is 0; b no");
  EXPECT_THAT(
      DetailsOf(status).violations,
      UnorderedElementsAre(Pair("a", "is 1; the most is 0"), Pair("b", "no")));
}

TEST(ErrorsTest, AlwaysGivesAReason) {
  EXPECT_EQ(DetailsOf(ToGrpcStatus(absl::UnavailableError("x"))).reason,
            "SHUTTING_DOWN");
  EXPECT_EQ(
      DetailsOf(ToGrpcStatus(absl::UnavailableError("the device has failed")))
          .reason,
      "DEVICE_FAILED");
  EXPECT_EQ(DetailsOf(ToGrpcStatus(absl::InternalError("x"))).reason,
            "INTERNAL");
  EXPECT_EQ(
      DetailsOf(ToGrpcStatus(absl::InternalError("the device has failed: x")))
          .reason,
      "DEVICE_FAILED");
  EXPECT_EQ(DetailsOf(ToGrpcStatus(absl::CancelledError("x"))).reason,
            "CANCELLED");
  EXPECT_EQ(DetailsOf(ToGrpcStatus(absl::ResourceExhaustedError("x"))).reason,
            "READER_TOO_SLOW");
}

TEST(ErrorsTest, TellsAFullQueueFromASlowReader) {
  const absl::Status status = SubmitError(absl::ResourceExhaustedError("full"));
  EXPECT_EQ(DetailsOf(ToGrpcStatus(status)).reason, "QUEUE_FULL");
  ASSERT_TRUE(RetryDelay(status).has_value());
  EXPECT_GE(RetryDelay(status)->count(), 500);
  EXPECT_LE(RetryDelay(status)->count(), 1000);
  EXPECT_FALSE(RetryDelay(absl::UnavailableError("x")).has_value());
}

TEST(ErrorsTest, TellsAnAnswerThatIsTooLargeFromASlowReader) {
  const grpc::Status status = ToGrpcStatus(AnswerTooLarge(size_t{3} << 30));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(DetailsOf(status).reason, "ANSWER_TOO_LARGE");
}

TEST(ErrorsTest, LeavesOkAlone) {
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
}

TEST(ErrorsTest, KeepsMessagesPrintableAndShort) {
  EXPECT_EQ(Excerpt("a\n\xff", 10), "a??");
  EXPECT_EQ(Excerpt("abcdef", 3), "abc...");
  const grpc::Status status =
      ToGrpcStatus(ModelNotFound(std::string(10'000, 'm'), "served"));
  EXPECT_LT(status.error_message().size(), 200u);
  EXPECT_THAT(status.error_message(), HasSubstr("served"));
}

}  // namespace
}  // namespace flash
