// Messages to and from gRPC's bytes.
//
// The service takes raw bytes because gRPC's own parsing answers UNIMPLEMENTED,
// without a word, to a message that it cannot read, as one with a string that
// is not UTF-8; a client deserves INVALID_ARGUMENT and the field's name.

#ifndef SERVER_SERVICE_BYTE_MESSAGES_H_
#define SERVER_SERVICE_BYTE_MESSAGES_H_

#include <grpcpp/support/byte_buffer.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message.h"

namespace flash {

// RESOURCE_EXHAUSTED, with details, if `message` has more than the 2 GiB that
// Protobuf can write.
absl::StatusOr<grpc::ByteBuffer> ToByteBuffer(
    const google::protobuf::Message& message);

// INVALID_ARGUMENT, with details, if `bytes` are no such message; names the
// string that is not valid UTF-8, if that is why. Likewise if `bytes` have so
// many small messages, strings or unknown fields that the message would take
// far more memory than they do.
absl::Status FromByteBuffer(const grpc::ByteBuffer& bytes,
                            google::protobuf::Message& message);

}  // namespace flash

#endif  // SERVER_SERVICE_BYTE_MESSAGES_H_
