#include "server/service/byte_messages.h"

#include "flash/v1/inference.pb.h"
#include "gmock/gmock.h"
#include "server/service/errors.h"
#include "tests/server/service/wire_details.h"

namespace flash {
namespace {

using testing::HasSubstr;

grpc::ByteBuffer Bytes(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

// `part` a hundred thousand times.
std::string Many(const std::string& part) {
  std::string bytes;
  for (int i = 0; i < 100'000; ++i) bytes += part;
  return bytes;
}

std::string Violation(const std::string& bytes, const std::string& field) {
  v1::GenerateRequest request;
  const grpc::Status status =
      ToGrpcStatus(FromByteBuffer(Bytes(bytes), request));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  return DetailsOf(status).violations[field];
}

TEST(ByteMessagesTest, RefusesMessagesThatWouldTakeFarMoreMemory) {
  // Empty lists, empty strings, map entries, and fields that are not known.
  EXPECT_THAT(Violation(Many(std::string("\x2a\x00", 2)), "prior_output_ids"),
              HasSubstr("entries"));
  EXPECT_THAT(Violation(Many(std::string("\x3a\x02\x22\x00", 4)), "stopping"),
              HasSubstr("entries"));
  v1::GenerateRequest request;
  for (int i = 0; i < 100'000; ++i) {
    request.mutable_stopping()->add_stop_strings("");
  }
  EXPECT_THAT(Violation(request.SerializeAsString(), "stopping.stop_strings"),
              HasSubstr("entries"));
  EXPECT_THAT(Violation(Many("\x70\x01"), "#14"), HasSubstr("entries"));
}

TEST(ByteMessagesTest, TakesAsManyIdsAsFit) {
  v1::GenerateRequest request;
  for (uint32_t i = 0; i < 1'000'000; ++i) {
    request.mutable_token_ids()->add_ids(i);
  }
  v1::GenerateRequest read;
  ASSERT_TRUE(FromByteBuffer(Bytes(request.SerializeAsString()), read).ok());
  EXPECT_EQ(read.token_ids().ids_size(), 1'000'000);

  std::string unpacked;  // as some clients write them
  for (int i = 0; i < 100'000; ++i) unpacked += std::string("\x10\x05", 2);
  v1::DetokenizeRequest ids;
  ASSERT_TRUE(FromByteBuffer(Bytes(unpacked), ids).ok());
  EXPECT_EQ(ids.token_ids_size(), 100'000);
}

TEST(ByteMessagesTest, RefusesLongMessagesThatAreCutOff) {
  v1::GenerateRequest request;
  request.mutable_token_ids()->mutable_ids()->Resize(100'000, 5);
  std::string bytes = request.SerializeAsString();
  bytes.resize(bytes.size() - 1);
  EXPECT_THAT(Violation(bytes, "request"), HasSubstr("GenerateRequest"));
  EXPECT_THAT(Violation(bytes + std::string(20, '\xff'), "request"),
              HasSubstr("GenerateRequest"));
}

}  // namespace
}  // namespace flash
