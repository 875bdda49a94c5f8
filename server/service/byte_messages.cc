#include "server/service/byte_messages.h"

#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/proto_buffer_writer.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/empty.pb.h"
#include "google/protobuf/unknown_field_set.h"
#include "kernels/check.h"
#include "server/service/errors.h"
#include "server/tokenizer/detokenizer.h"

namespace flash {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;

bool Read(grpc::ByteBuffer bytes, Message& message) {  // a copy of references
  return grpc::GenericDeserialize<grpc::ProtoBufferReader, Message>(&bytes,
                                                                    &message)
      .ok();
}

// The path of the first string in `fields`, which are those of a message of
// `type`, that is not valid UTF-8; empty if there is none.
std::string BadString(const UnknownFieldSet& fields, const Descriptor& type) {
  for (int i = 0; i < fields.field_count(); ++i) {
    const UnknownField& field = fields.field(i);
    const FieldDescriptor* known = type.FindFieldByNumber(field.number());
    if (known == nullptr || field.type() != UnknownField::TYPE_LENGTH_DELIMITED)
      continue;
    if (known->type() == FieldDescriptor::TYPE_STRING &&
        !IsValidUtf8(field.length_delimited())) {
      return known->name();
    }
    if (known->type() != FieldDescriptor::TYPE_MESSAGE) continue;
    UnknownFieldSet inner;
    if (!inner.ParseFromString(field.length_delimited())) continue;
    const std::string path = BadString(inner, *known->message_type());
    if (!path.empty()) return absl::StrCat(known->name(), ".", path);
  }
  return "";
}

}  // namespace

grpc::ByteBuffer ToByteBuffer(const google::protobuf::Message& message) {
  grpc::ByteBuffer bytes;
  bool own = false;
  const grpc::Status status =
      grpc::GenericSerialize<grpc::ProtoBufferWriter, Message>(message, &bytes,
                                                               &own);
  FLASH_CHECK(status.ok());
  return bytes;
}

absl::Status FromByteBuffer(const grpc::ByteBuffer& bytes,
                            google::protobuf::Message& message) {
  if (Read(bytes, message)) return absl::OkStatus();
  google::protobuf::Empty fields;
  const bool readable = Read(bytes, fields);
  const std::string bad =
      readable ? BadString(fields.GetReflection()->GetUnknownFields(fields),
                           *message.GetDescriptor())
               : "";
  if (!bad.empty()) {
    return InvalidRequest({{bad, "is not valid UTF-8"}});
  }
  return InvalidRequest({{"request", absl::StrCat("is not a message of type ",
                                                  message.GetTypeName())}});
}

}  // namespace flash
