#include "client/message_json.h"

#include <string>

#include "google/protobuf/descriptor.h"

namespace flash {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using nlohmann::ordered_json;

// The field's value, or that of its element `index` if it is repeated.
ordered_json ValueJson(const Message& message, const FieldDescriptor& field,
                       int index) {
  const auto& get = *message.GetReflection();
  const bool repeated = field.is_repeated();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return repeated ? get.GetRepeatedBool(message, &field, index)
                      : get.GetBool(message, &field);
    case FieldDescriptor::CPPTYPE_INT32:
      return repeated ? get.GetRepeatedInt32(message, &field, index)
                      : get.GetInt32(message, &field);
    case FieldDescriptor::CPPTYPE_UINT32:
      return repeated ? get.GetRepeatedUInt32(message, &field, index)
                      : get.GetUInt32(message, &field);
    case FieldDescriptor::CPPTYPE_INT64:
      return repeated ? get.GetRepeatedInt64(message, &field, index)
                      : get.GetInt64(message, &field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return repeated ? get.GetRepeatedUInt64(message, &field, index)
                      : get.GetUInt64(message, &field);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return repeated ? get.GetRepeatedFloat(message, &field, index)
                      : get.GetFloat(message, &field);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return repeated ? get.GetRepeatedDouble(message, &field, index)
                      : get.GetDouble(message, &field);
    case FieldDescriptor::CPPTYPE_STRING:
      return repeated ? get.GetRepeatedString(message, &field, index)
                      : get.GetString(message, &field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return repeated ? get.GetRepeatedEnum(message, &field, index)->name()
                      : get.GetEnum(message, &field)->name();
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return MessageJson(repeated
                             ? get.GetRepeatedMessage(message, &field, index)
                             : get.GetMessage(message, &field));
  }
  return nullptr;
}

}  // namespace

ordered_json MessageJson(const Message& message) {
  ordered_json json = ordered_json::object();
  const auto& reflection = *message.GetReflection();
  const auto& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.is_repeated()) {
      const int size = reflection.FieldSize(message, &field);
      for (int j = 0; j < size; ++j) {
        json[field.name()].push_back(ValueJson(message, field, j));
      }
    } else if (!field.has_presence() || reflection.HasField(message, &field)) {
      json[field.name()] = ValueJson(message, field, 0);
    }
  }
  return json;
}

std::string JsonLine(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace flash
