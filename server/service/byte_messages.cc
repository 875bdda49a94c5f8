#include "server/service/byte_messages.h"

#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/proto_buffer_writer.h>

#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/empty.pb.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/unknown_field_set.h"
#include "google/protobuf/wire_format_lite.h"
#include "server/service/errors.h"
#include "server/tokenizer/detokenizer.h"

namespace flash {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// Two bytes on the wire can become a hundred in memory: an empty message or
// string in a list, an unknown field. Messages within the service's limits have
// far fewer; a small one needs no look.
constexpr int kMaxParts = 16 << 10;
constexpr size_t kSmallMessageBytes = 64 << 10;

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

// Takes one from `parts_left` for each part in `in`, a message of `type`. The
// field at which there are too many; empty if there are not, or if `in` is no
// such message, which is for others to find.
std::string FieldOfManyParts(CodedInputStream& in, const Descriptor& type,
                             int& parts_left) {
  while (const uint32_t tag = in.ReadTag()) {
    const int number = WireFormatLite::GetTagFieldNumber(tag);
    const FieldDescriptor* field = type.FindFieldByNumber(number);
    const bool is_part =
        field == nullptr || WireFormatLite::GetTagWireType(tag) ==
                                WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
    if (is_part && --parts_left < 0) {
      return field == nullptr ? absl::StrCat("#", number) : field->name();
    }
    if (field == nullptr || !is_part ||
        field->type() != FieldDescriptor::TYPE_MESSAGE) {
      if (!WireFormatLite::SkipField(&in, tag)) return "";
      continue;
    }
    const auto limit = in.ReadLengthAndPushLimit();
    const std::string path =
        FieldOfManyParts(in, *field->message_type(), parts_left);
    if (!path.empty()) return absl::StrCat(field->name(), ".", path);
    if (!in.CheckEntireMessageConsumedAndPopLimit(limit)) return "";
  }
  return "";
}

std::string FieldOfManyParts(grpc::ByteBuffer bytes, const Descriptor& type) {
  if (bytes.Length() <= kSmallMessageBytes) return "";
  grpc::ProtoBufferReader reader(&bytes);
  CodedInputStream in(&reader);
  int parts_left = kMaxParts;
  return FieldOfManyParts(in, type, parts_left);
}

}  // namespace

absl::StatusOr<grpc::ByteBuffer> ToByteBuffer(
    const google::protobuf::Message& message) {
  const size_t size = message.ByteSizeLong();
  if (size > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return AnswerTooLarge(size);
  }
  grpc::ByteBuffer bytes;
  bool own = false;
  const grpc::Status status =
      grpc::GenericSerialize<grpc::ProtoBufferWriter, Message>(message, &bytes,
                                                               &own);
  if (!status.ok()) return absl::InternalError("an answer cannot be written");
  return bytes;
}

absl::Status FromByteBuffer(const grpc::ByteBuffer& bytes,
                            google::protobuf::Message& message) {
  const std::string many = FieldOfManyParts(bytes, *message.GetDescriptor());
  if (!many.empty()) {
    return InvalidRequest({{many, "has far more entries than any limit"}});
  }
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
